// Ingest: sources in, a dataset's folder out, complete or not at all.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/data/dataset_folder.h"
#include "src/data/problems.h"
#include "src/data/statistics.h"
#include "src/data/typed_dataset.h"
#include "src/data/typed_writer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using SourcePaths = std::map<std::string, fs::path>;

/// The sources by role: each known, none twice, the required ones there.
Result<SourcePaths> check_sources(const IngestRequest& request,
                                  const std::vector<std::string>& required,
                                  const std::vector<std::string>& optional) {
  SourcePaths paths;
  for (const IngestSource& source : request.sources) {
    const bool known = std::count(required.begin(), required.end(), source.role) > 0 ||
                       std::count(optional.begin(), optional.end(), source.role) > 0;
    if (!known) {
      return dataset_error("sources", "role " + quoted_value(source.role) +
                                          " does not belong to the format " + request.format);
    }
    if (!paths.emplace(source.role, source.path).second) {
      return dataset_error("sources", "role " + source.role + " is given twice");
    }
  }
  for (const std::string& role : required) {
    if (!paths.contains(role)) return dataset_error("sources", "role " + role + " is required");
  }
  return paths;
}

Status check_bytes(const CsvOptions& options) {
  if (!is_csv_delimiter(options.delimiter)) {
    return dataset_error("csv.delimiter", quoted_value({&options.delimiter, 1}) +
                                              ", expected a printable ASCII byte or a tab");
  }
  for (const std::string& marker : options.missing) {
    if (!is_utf8(marker)) {
      return dataset_error("csv.missing", quoted_value(marker) + " is not UTF-8");
    }
  }
  return {};
}

Result<TypedDataset> read_arrays(const IngestRequest& request) {
  const bool one_file = std::ranges::any_of(
      request.sources, [](const IngestSource& s) { return s.role == "data" || s.role == "test"; });
  if (one_file) {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    return read_arrays_dataset(request.arrays, {.data = paths["data"], .test = paths["test"]});
  }
  ASSIGN_OR_RETURN(SourcePaths paths,
                   check_sources(request, {"inputs", "targets"}, {"test_inputs", "test_targets"}));
  if (paths.contains("test_inputs") != paths.contains("test_targets")) {
    return dataset_error("sources", "test_inputs and test_targets belong together, one is missing");
  }
  return read_arrays_dataset(request.arrays, {.inputs = paths["inputs"],
                                              .targets = paths["targets"],
                                              .test_inputs = paths["test_inputs"],
                                              .test_targets = paths["test_targets"]});
}

Result<TypedDataset> read_sources(const IngestRequest& request) {
  if (request.format == "csv") {
    if (Status s = check_bytes(request.csv); !s.ok()) return std::move(s).error();
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    return read_csv_dataset(request.csv, paths["data"], paths["test"]);
  }
  if (request.format == "jsonl") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    CsvOptions options = request.csv;
    options.json_lines = true;
    return read_csv_dataset(options, paths["data"], paths["test"]);
  }
  if (request.format == "idx") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"train_images", "train_labels"},
                                                      {"test_images", "test_labels"}));
    if (paths.contains("test_images") != paths.contains("test_labels")) {
      return dataset_error("sources",
                           "test_images and test_labels belong together, one is missing");
    }
    return read_idx_dataset(
        {paths["train_images"], paths["train_labels"], paths["test_images"], paths["test_labels"]});
  }
  if (request.format == "text") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    return read_text_dataset(request.text, paths["data"], paths["test"]);
  }
  if (request.format == "images") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    return read_images_dataset(request.images, paths["data"], paths["test"]);
  }
  if (request.format == "text_files") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {"test"}));
    return read_text_files_dataset(request.text_files, paths["data"], paths["test"]);
  }
  if (request.format == "cifar") {
    ASSIGN_OR_RETURN(SourcePaths paths, check_sources(request, {"data"}, {}));
    return read_cifar_dataset(paths["data"]);
  }
  if (request.format == "arrays") return read_arrays(request);
  return dataset_error("format",
                       quoted_value(request.format) +
                           ", expected csv, jsonl, idx, text, text_files, images, cifar or arrays");
}

/// schema.json. A failing digest of a source is an I/O error.
Result<std::string> schema_json(const IngestRequest& request, const DatasetSchema& schema) {
  nlohmann::json json;
  json["format"] = kDatasetFormat;
  json["schema"] = nlohmann::json::parse(schema.to_json());
  json["options"] = {{"format", request.format}};
  if (request.format == "csv" || request.format == "jsonl") {
    const CsvOptions& o = request.csv;
    nlohmann::json& options = json["options"][request.format];
    options = {{"target", o.target}, {"target_kind", o.target_kind},
               {"image", o.image},   {"categorical", o.categorical},
               {"ignore", o.ignore}, {"missing", o.missing}};
    if (request.format == "csv") {
      options.update({{"header", o.header}, {"delimiter", std::string(1, o.delimiter)}});
    }
    if (!o.date.empty()) options["date"] = o.date;
    if (!o.text.empty()) {
      options.update({{"text", o.text},
                      {"tokenizer", o.tokenizer},
                      {"vocabulary_size", o.vocabulary_size},
                      {"max_length", o.max_length}});
    }
  } else if (request.format == "text") {
    json["options"]["text"] = {{"tokenizer", request.text.tokenizer},
                               {"test_share", request.text.test_share}};
    if (!request.text.field.empty()) json["options"]["text"]["field"] = request.text.field;
    if (is_subword(*find_tokenizer(request.text.tokenizer))) {
      json["options"]["text"]["vocabulary_size"] = request.text.vocabulary_size;
    }
  } else if (request.format == "images") {
    const ImagesOptions& o = request.images;
    json["options"]["images"] = {{"size", o.size},         {"resize", o.resize},
                                 {"channels", o.channels}, {"labels", o.labels},
                                 {"seed", o.seed},         {"test_share", o.test_share}};
  } else if (request.format == "text_files") {
    const TextFilesOptions& o = request.text_files;
    json["options"]["text_files"] = {{"tokenizer", o.tokenizer},
                                     {"vocabulary_size", o.vocabulary_size},
                                     {"max_length", o.max_length},
                                     {"test_share", o.test_share},
                                     {"seed", o.seed}};
  } else if (request.format == "arrays") {
    const ArraysOptions& o = request.arrays;
    json["options"]["arrays"] = {{"inputs", o.inputs},
                                 {"targets", o.targets},
                                 {"target_kind", o.target_kind},
                                 {"test_share", o.test_share},
                                 {"seed", o.seed}};
  }
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

Status write_folder(const IngestRequest& request, TypedDataset& data, const fs::path& folder,
                    Files& files) {
  if (Status s = files.create_directories(folder); !s.ok()) return s;
  ASSIGN_OR_RETURN(const std::string data_digest,
                   write_typed_dataset(files, folder / "data.safetensors", data));
  data.schema.statistics = measure(data.schema, data.train);
  ASSIGN_OR_RETURN(const std::string schema, schema_json(request, data.schema));
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
                      "the dataset's folder exists already");
  }
  ASSIGN_OR_RETURN(TypedDataset data, read_sources(request));
  fs::path temporary = folder;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    if (Status s = files.remove_all(temporary); !s.ok()) return s;  // of an ingest that was killed
    if (Status s = write_folder(request, data, temporary, files); !s.ok()) return s;
    return files.rename_durable(temporary, folder);
  };
  if (Status s = write(); !s.ok()) {
    (void)files.remove_all(temporary);
    return std::move(s).error();
  }
  return std::move(data.schema);
}

}  // namespace trainyard
