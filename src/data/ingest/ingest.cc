// Ingest: converts sources to a dataset's folder, which appears complete or not at all.
#include <algorithm>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"
#include "src/data/dataset.h"
#include "src/data/dataset_folder.h"
#include "src/data/files/foreign_kind.h"
#include "src/data/ingest/formats.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/statistics.h"
#include "src/data/typed_writer.h"
#include "src/data/warnings.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

/// Returns the SHA-256 of each source. It is empty for a folder, which only a client that stores no
/// dataset reads in place.
Result<std::vector<std::string>> digest_sources(const std::vector<IngestSource>& sources) {
  std::vector<std::string> digests;
  for (const IngestSource& source : sources) {
    std::error_code ec;
    std::string& digest = digests.emplace_back();
    if (fs::is_directory(source.path, ec)) continue;
    digest = source.sha256;
    if (!digest.empty()) continue;
    ASSIGN_OR_RETURN(digest, sha256_file(source.path));
  }
  return digests;
}

/// Returns the content of schema.json.
std::string schema_json(const SourceFormat& format, const IngestRequest& request,
                        const DatasetSchema& schema, const std::vector<std::string>& digests) {
  nlohmann::json json;
  json["format"] = kDatasetFormat;
  json["schema"] = schema.to_json();
  json["options"] = {{"format", format.name}};
  if (format.options != nullptr)
    json["options"][std::string(format.name)] = format.options(request);
  json["sources"] = nlohmann::json::array();
  for (size_t i = 0; i < digests.size(); ++i) {
    if (digests[i].empty()) continue;
    json["sources"].push_back({{"role", request.sources[i].role}, {"sha256", digests[i]}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status write_text(Files& files, const fs::path& path, const std::string& text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  return files.write_file(path, std::span(&part, 1));
}

using SourceDigests = std::future<Result<std::vector<std::string>>>;

Status write_folder(const SourceFormat& format, const IngestRequest& request, TypedDataset& data,
                    SourceDigests source_digests, const fs::path& folder, Files& files) {
  if (Status s = files.create_directories(folder); !s.ok()) return s;
  // Statistics are computed by a thread while the data is written, but for streamed images only
  // afterwards, since writing collects their sums.
  const auto when = data.images ? std::launch::deferred : std::launch::async;
  struct Measured {
    DatasetStatistics statistics;
    std::vector<DataWarning> warnings;
  };
  std::future<Measured> measured = std::async(when, [&] {
    Measured m{measure(data.schema, data.train), {}};
    m.warnings = find_warnings(data.schema, m.statistics, data.train, data.test,
                               format.has_columns ? format.name : "");
    return m;
  });
  ASSIGN_OR_RETURN(const std::string data_digest,
                   write_typed_dataset(files, folder / "data.safetensors", data));
  auto [statistics, warnings] = measured.get();
  data.schema.statistics = std::move(statistics);
  std::ranges::move(warnings, std::back_inserter(data.schema.warnings));  // after the reader's
  ASSIGN_OR_RETURN(const std::vector<std::string> digests, source_digests.get());
  const std::string schema = schema_json(format, request, data.schema, digests);
  if (std::ssize(schema) > kSchemaBytesMax) {
    return dataset_error("data", "the names of its columns, categories, classes and tokens take " +
                                     std::to_string(schema.size()) + " bytes, expected at most " +
                                     std::to_string(kSchemaBytesMax));
  }
  if (Status s = write_text(files, folder / "schema.json", schema); !s.ok()) return s;
  if (Status s = write_text(files, folder / "digest", digest_text(sha256_hex(schema), data_digest));
      !s.ok()) {
    return s;
  }
  return files.sync_directory(folder);
}

/// Replaces `what` in the text wherever it occurs.
void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

/// Names the file in the command that converts it, which a reader writes for 'FILE'
/// (src/data/files/foreign_kind.h).
void name_in_command(std::string& text, const std::string& name) {
  if (name.find_first_of("'\"\\$`") != name.npos) return;  // marks that end quotes in a shell
  replace_all(text, "'FILE'", "'" + name + "'");
  replace_all(text, "'FILE.", "'" + converted_stem(name, ".csv") + ".");
}

/// Replaces roles by file names in an error of a reader, whose texts begin with the role of the
/// file: "data: line 3".
Error with_file_names(Error error, const std::vector<IngestSource>& sources) {
  const auto name_file = [&](std::string& text) {
    const std::string role = text.substr(0, text.find(':'));
    const auto source = std::ranges::find(sources, role, &IngestSource::role);
    if (source == sources.end() || source->name.empty()) return;
    const bool shared = std::ranges::count(sources, source->name, &IngestSource::name) > 1;
    text.replace(0, role.size(), source->name + (shared ? " (" + role + ")" : ""));
  };
  for (const IngestSource& source : sources) {
    if (source.name.empty() || !error.message.starts_with(source.role + ": this is ")) continue;
    name_in_command(error.message, source.name);
    for (FieldViolation& v : error.violations) name_in_command(v.description, source.name);
  }
  name_file(error.message);
  for (FieldViolation& violation : error.violations) name_file(violation.field);
  return error;
}

}  // namespace

Result<DatasetSchema> ingest(const IngestRequest& request, const fs::path& folder, Files& files) {
  std::error_code ec;
  if (fs::exists(folder, ec)) {
    return make_error(ErrorCode::kAlreadyExists, "DATASET_EXISTS",
                      "the dataset's folder already exists");
  }
  ASSIGN_OR_RETURN(const SourceFormat* format, find_format(request.format));
  ASSIGN_OR_RETURN(const SourcePaths paths, check_sources(*format, request.sources));
  SourceDigests digests = std::async(std::launch::async, digest_sources, request.sources);
  Result<TypedDataset> read = format->read(request, paths);
  if (!read.ok()) return with_file_names(std::move(read).error(), request.sources);
  TypedDataset data = *std::move(read);
  fs::path temporary = folder;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    // An ingest that was killed may have left its temporary folder.
    if (Status s = files.remove_all(temporary); !s.ok()) return s;
    if (Status s = write_folder(*format, request, data, std::move(digests), temporary, files);
        !s.ok())
      return s;
    return files.rename_durable(temporary, folder);
  };
  if (Status s = write(); !s.ok()) {
    (void)files.remove_all(temporary);
    return std::move(s).error();
  }
  return std::move(data.schema);
}

}  // namespace trainyard
