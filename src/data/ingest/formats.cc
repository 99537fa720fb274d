#include "src/data/ingest/formats.h"

#include <algorithm>
#include <array>

#include "src/base/files.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/documents/documents_dataset.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/models/spec_json.h"

namespace trainyard {
namespace {

const SourceSet kDataAndTest = {{"data"}, {"test"}};

/// The roles of a tokenizer's files, by their names in a model's folder. The file of the role
/// "tokenizer", which is alone, may have any name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kTokenizerFiles = {
    {{"tokenizer", "tokenizer"},
     {"tokenizer_json", "tokenizer.json"},
     {"tokenizer_model", "tokenizer.model"},
     {"tekken_json", "tekken.json"},
     {"tokenizer_config", "tokenizer_config.json"},
     {"special_tokens_map", "special_tokens_map.json"},
     {"added_tokens", "added_tokens.json"},
     {"generation_config", "generation_config.json"},
     {"chat_template", "chat_template.jinja"},
     {"chat_template_json", "chat_template.json"}}};

SourceSet with_tokenizer(SourceSet set) {
  for (const auto& [role, name] : kTokenizerFiles) set.others.emplace_back(role);
  return set;
}

/// Returns the path of the source with this role; empty if the request has none.
std::filesystem::path path_of(const SourcePaths& paths, std::string_view role) {
  const auto it = paths.find(role);
  return it == paths.end() ? std::filesystem::path() : it->second;
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

CsvOptions table_options(const IngestRequest& request) {
  CsvOptions options = request.csv;
  options.json_lines = request.format == "jsonl";
  // The names of columns are in NFC, too.
  for (auto* name : {&options.target, &options.group, &options.time}) *name = nfc(*name);
  for (auto* names :
       {&options.categorical, &options.ignore, &options.date, &options.text, &options.numbers}) {
    std::ranges::transform(*names, names->begin(), nfc);
  }
  return options;
}

Result<TypedDataset> read_libsvm(const IngestRequest&, const SourcePaths& paths) {
  return read_libsvm_dataset(path_of(paths, "data"), path_of(paths, "test"));
}

Result<TypedDataset> read_idx(const IngestRequest&, const SourcePaths& paths) {
  return read_idx_dataset({path_of(paths, "train_images"), path_of(paths, "train_labels"),
                           path_of(paths, "test_images"), path_of(paths, "test_labels")});
}

Result<TypedDataset> read_text(const IngestRequest& request, const SourcePaths& paths) {
  return read_text_dataset(request.text, path_of(paths, "data"), path_of(paths, "test"));
}

Result<TypedDataset> read_text_files(const IngestRequest& request, const SourcePaths& paths) {
  return read_text_files_dataset(request.text_files, path_of(paths, "data"),
                                 path_of(paths, "test"));
}

Result<TypedDataset> read_images(const IngestRequest& request, const SourcePaths& paths) {
  return read_images_dataset(request.images, path_of(paths, "data"), path_of(paths, "test"));
}

Result<TypedDataset> read_cifar(const IngestRequest&, const SourcePaths& paths) {
  return read_cifar_dataset(path_of(paths, "data"));
}

Result<TypedDataset> read_arrays(const IngestRequest& request, const SourcePaths& paths) {
  return read_arrays_dataset(
      request.arrays,
      {path_of(paths, "data"), path_of(paths, "test"), path_of(paths, "inputs"),
       path_of(paths, "targets"), path_of(paths, "test_inputs"), path_of(paths, "test_targets")});
}

/// Reads the files of a tokenizer that are among the sources.
Result<TokenizerFiles> read_tokenizer(const IngestRequest& request) {
  TokenizerFiles files;
  for (const IngestSource& source : request.sources) {
    const auto file =
        std::ranges::find(kTokenizerFiles, source.role, [](const auto& f) { return f.first; });
    if (file == kTokenizerFiles.end()) continue;
    const bool alone = source.role == "tokenizer" && !source.name.empty();
    Result<std::string> content = read_file(source.path, kTokenizerBytesMax);
    if (!content.ok()) {
      Error e = std::move(content).error();
      e.message = source.role + ": " + e.message;
      return e;
    }
    files.emplace(alone ? source.name : std::string(file->second), *std::move(content));
  }
  if (files.empty()) {
    return dataset_error("sources",
                         "there is no tokenizer: a file of a role from tokenizer on is "
                         "required, such as tokenizer_json");
  }
  return files;
}

Result<TypedDataset> read_table(const IngestRequest& request, const SourcePaths& paths) {
  const CsvOptions options = table_options(request);
  if (!options.json_lines) {
    if (Status s = check_bytes(options); !s.ok()) return std::move(s).error();
  }
  TokenizerFiles tokenizer;
  if (find_tokenizer(options.tokenizer) == TokenizerKind::kPretrained) {
    ASSIGN_OR_RETURN(tokenizer, read_tokenizer(request));
  }
  return read_csv_dataset(options, path_of(paths, "data"), path_of(paths, "test"), request.threads,
                          std::move(tokenizer));
}

Result<TypedDataset> read_documents(const IngestRequest& request, const SourcePaths& paths) {
  ASSIGN_OR_RETURN(TokenizerFiles files, read_tokenizer(request));
  return read_documents_dataset(request.documents, std::move(files), path_of(paths, "data"),
                                path_of(paths, "test"));
}

nlohmann::json write_table(const IngestRequest& request) {
  return fields_to_json(table_options(request));
}

template <auto kOptions>
nlohmann::json write(const IngestRequest& request) {
  return fields_to_json(request.*kOptions);
}

/// Returns the set to which the sources belong: the first that has one of their roles, else the
/// last.
const SourceSet& set_of(const SourceFormat& format, const std::vector<IngestSource>& sources) {
  const auto holds = [](const std::vector<std::string>& roles, const IngestSource& source) {
    return std::ranges::find(roles, source.role) != roles.end();
  };
  for (const SourceSet& set : format.sources) {
    for (const IngestSource& source : sources) {
      if (holds(set.train, source) || holds(set.test, source)) return set;
    }
  }
  return format.sources.back();
}

}  // namespace

const std::vector<SourceFormat>& source_formats() {
  using Request = IngestRequest;
  static const std::vector<SourceFormat> formats = {
      {"csv", {with_tokenizer(kDataAndTest)}, read_table, write_table, /*has_columns=*/true},
      {"jsonl", {with_tokenizer(kDataAndTest)}, read_table, write_table, /*has_columns=*/true},
      {"libsvm", {kDataAndTest}, read_libsvm},
      {"idx", {{{"train_images", "train_labels"}, {"test_images", "test_labels"}}}, read_idx},
      {"text", {kDataAndTest}, read_text, write<&Request::text>},
      {"text_files", {kDataAndTest}, read_text_files, write<&Request::text_files>},
      {"images", {kDataAndTest}, read_images, write<&Request::images>},
      {"cifar", {{{"data"}}}, read_cifar},
      {"arrays",
       {kDataAndTest, {{"inputs", "targets"}, {"test_inputs", "test_targets"}}},
       read_arrays,
       write<&Request::arrays>},
      {"documents", {with_tokenizer(kDataAndTest)}, read_documents, write<&Request::documents>},
  };
  return formats;
}

Result<const SourceFormat*> find_format(std::string_view name) {
  const std::vector<SourceFormat>& formats = source_formats();
  const auto it = std::ranges::find(formats, name, &SourceFormat::name);
  if (it != formats.end()) return &*it;
  std::vector<std::string_view> names;
  for (const SourceFormat& format : formats) names.push_back(format.name);
  return dataset_error("format", quoted_value(name) + ", expected " + joined(names));
}

Result<SourcePaths> check_sources(const SourceFormat& format,
                                  const std::vector<IngestSource>& sources) {
  const SourceSet& set = set_of(format, sources);
  SourcePaths paths;
  for (const IngestSource& source : sources) {
    if (std::ranges::count(set.train, source.role) + std::ranges::count(set.test, source.role) +
            std::ranges::count(set.others, source.role) ==
        0) {
      return dataset_error("sources", "role " + quoted_value(source.role) +
                                          " does not belong to the format " +
                                          std::string(format.name));
    }
    if (!paths.emplace(source.role, source.path).second) {
      return dataset_error("sources", "role " + source.role + " is given twice");
    }
  }
  for (const std::string& role : set.train) {
    if (!paths.contains(role)) return dataset_error("sources", "role " + role + " is required");
  }
  const auto tests = std::ranges::count_if(
      set.test, [&](const std::string& role) { return paths.contains(role); });
  if (tests != 0 && tests != std::ssize(set.test)) {
    return dataset_error("sources",
                         joined(set.test, " and ") + " belong together, but one is missing");
  }
  return paths;
}

}  // namespace trainyard
