// server/store/dataset_ref.h: a reference to a dataset, the last part of a name: "digits" (the
// newest version) or "digits@2".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::server {

struct DatasetRef {
  std::string id;
  int32_t version = 0;  // from 1 on; 0 means the newest

  /// Returns the form that parse_dataset_ref accepts.
  std::string text() const { return version == 0 ? id : id + "@" + std::to_string(version); }
};

/// A dataset in a project.
struct DatasetName {
  std::string project;
  DatasetRef ref;
};

/// A name that was checked when it was stored: the project and the last part, as in a job's spec.
struct StoredName {
  std::string project;
  std::string id;  // of a dataset with its version
};
/// Splits a full name, or the ID of a resource in `project`.
StoredName split_stored_name(const std::string& project, const std::string& name);

/// Returns nothing if the text after an @ is not a version: a decimal number from 1 to 999999999
/// without leading zeros. The ID is not checked.
std::optional<DatasetRef> parse_dataset_ref(std::string_view text);

}  // namespace trainyard::server
