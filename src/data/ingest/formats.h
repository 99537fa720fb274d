// src/data/ingest/formats.h: the formats that an ingest reads. A format is a row of the table in
// formats.cc; docs/adding_a_format.md names all that belongs to one.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

/// A request's files by role.
using SourcePaths = std::map<std::string, std::filesystem::path, std::less<>>;

/// Roles of sources that come together: those of the test set all, or none.
struct SourceSet {
  std::vector<std::string> train;
  std::vector<std::string> test = {};
};

struct SourceFormat {
  std::string_view name;
  std::vector<SourceSet> sources;  // one of them
  Result<TypedDataset> (*read)(const IngestRequest& request, const SourcePaths& paths);
  /// The options that decide what is read, for schema.json; null where there are none.
  nlohmann::json (*options)(const IngestRequest& request) = nullptr;
  bool has_columns = false;  // which its options `ignore`, `date` and `text` name
};

const std::vector<SourceFormat>& source_formats();
/// Refuses, with the names there are, one that is not there.
Result<const SourceFormat*> find_format(std::string_view name);

/// The request's sources by role: each known to the format, none twice, the required ones there.
Result<SourcePaths> check_sources(const SourceFormat& format,
                                  const std::vector<IngestSource>& sources);

}  // namespace trainyard
