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

/// Returns nothing if the text after an @ is not a version: a decimal number from 1 to 999999999
/// without leading zeros. The ID is not checked.
std::optional<DatasetRef> parse_dataset_ref(std::string_view text);

}  // namespace trainyard::server
