// src/data/ingest/formats.h: the formats that an ingest reads. Each is a row of the table in
// formats.cc; docs/adding_a_format.md lists everything that a format needs.
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

/// The paths of a request's files, by role.
using SourcePaths = std::map<std::string, std::filesystem::path, std::less<>>;

/// Roles of sources that must be given together. Those of the test set must be given all or not at
/// all.
struct SourceSet {
  std::vector<std::string> train;
  std::vector<std::string> test = {};
  std::vector<std::string> others = {};  // each may be given or missing
};

struct SourceFormat {
  std::string_view name;
  std::vector<SourceSet> sources;  // a request has the sources of one of these sets
  Result<TypedDataset> (*read)(const IngestRequest& request, const SourcePaths& paths);
  /// Writes the options that influence the result, for schema.json; null if the format has none.
  nlohmann::json (*options)(const IngestRequest& request) = nullptr;
  bool has_columns = false;  // it has the options `ignore`, `date` and `text`, which name columns
};

const std::vector<SourceFormat>& source_formats();
/// Refuses an unknown name; the error lists the known ones.
Result<const SourceFormat*> find_format(std::string_view name);

/// Returns the paths of the request's sources by role. Refuses roles that the format does not know,
/// roles that are given twice, and missing ones.
Result<SourcePaths> check_sources(const SourceFormat& format,
                                  const std::vector<IngestSource>& sources);

}  // namespace trainyard
