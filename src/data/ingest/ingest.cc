// Ingest: sources in, a dataset's folder out, complete or not at all.
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"
#include "src/data/dataset.h"
#include "src/data/dataset_folder.h"
#include "src/data/ingest/formats.h"
#include "src/data/statistics.h"
#include "src/data/typed_writer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
/// schema.json. A failing digest of a source is an I/O error.
Result<std::string> schema_json(const SourceFormat& format, const IngestRequest& request,
                                const DatasetSchema& schema) {
  nlohmann::json json;
  json["format"] = kDatasetFormat;
  json["schema"] = schema.to_json();
  json["options"] = {{"format", format.name}};
  if (format.options != nullptr)
    json["options"][std::string(format.name)] = format.options(request);
  json["sources"] = nlohmann::json::array();
  for (const IngestSource& source : request.sources) {
    // A folder is read in place, by a client that keeps no dataset: there is no file to digest.
    std::error_code ec;
    if (fs::is_directory(source.path, ec)) continue;
    ASSIGN_OR_RETURN(const std::string digest, sha256_file(source.path));
    json["sources"].push_back({{"role", source.role}, {"sha256", digest}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status write_text(Files& files, const fs::path& path, const std::string& text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  return files.write_file(path, std::span(&part, 1));
}

Status write_folder(const SourceFormat& format, const IngestRequest& request, TypedDataset& data,
                    const fs::path& folder, Files& files) {
  if (Status s = files.create_directories(folder); !s.ok()) return s;
  ASSIGN_OR_RETURN(const std::string data_digest,
                   write_typed_dataset(files, folder / "data.safetensors", data));
  data.schema.statistics = measure(data.schema, data.train);
  ASSIGN_OR_RETURN(const std::string schema, schema_json(format, request, data.schema));
  if (Status s = write_text(files, folder / "schema.json", schema); !s.ok()) return s;
  if (Status s = write_text(files, folder / "digest", digest_text(sha256_hex(schema), data_digest));
      !s.ok()) {
    return s;
  }
  return files.sync_directory(folder);
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
  ASSIGN_OR_RETURN(TypedDataset data, format->read(request, paths));
  fs::path temporary = folder;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    if (Status s = files.remove_all(temporary); !s.ok()) return s;  // of an ingest that was killed
    if (Status s = write_folder(*format, request, data, temporary, files); !s.ok()) return s;
    return files.rename_durable(temporary, folder);
  };
  if (Status s = write(); !s.ok()) {
    (void)files.remove_all(temporary);
    return std::move(s).error();
  }
  return std::move(data.schema);
}

}  // namespace trainyard
