#include "src/pretrained/pretrained_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/check.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/checkpoint/merged_weights.h"
#include "src/data/limits.h"
#include "src/models/preset.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr std::array kWeightFiles = {"model.safetensors", "model.safetensors.index.json"};
/// Weights in formats of Python programs; reading one of these can run code.
constexpr std::array kPickledFiles = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                      "pytorch_model.pt", "consolidated.00.pth"};

bool has_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Error folder_error(std::string reason, const std::string& message) {
  const ErrorCode code =
      reason == "FILE_NOT_FOUND" ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  return make_error(code, std::move(reason), message);
}

Result<std::string> read_config(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    return folder_error("FILE_NOT_FOUND", folder.string() + ": no such folder");
  }
  if (!fs::is_directory(folder, ignored)) {
    return folder_error(
        "MODEL_FILE_INVALID",
        folder.string() + " is a file, expected a folder with " + kConfigFile + ", or a GGUF file");
  }
  if (!has_file(folder / kConfigFile)) {
    return folder_error("FILE_NOT_FOUND", folder.string() + " has no " + kConfigFile +
                                              ", expected the folder of a language model as "
                                              "transformers saves it");
  }
  return read_file(folder / kConfigFile, kModelConfigBytesMax);
}

/// Returns the weights' file; empty if there are none.
Result<fs::path> find_weights(const fs::path& folder) {
  for (const char* name : kWeightFiles) {
    if (has_file(folder / name)) return folder / name;
  }
  for (const char* name : kPickledFiles) {
    if (!has_file(folder / name)) continue;
    return folder_error("MODEL_UNSUPPORTED",
                        (folder / name).string() +
                            " can run code when it is read; expected model.safetensors, which "
                            "save_pretrained() of transformers writes");
  }
  return fs::path();
}

/// Returns the name of the repository in `_name_or_path` of the config, which transformers writes;
/// else that of the folder, since a path there was one of another machine.
std::string title_of(const fs::path& folder, const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  const auto name = json.find("_name_or_path");
  if (name != json.end() && name->is_string()) {
    const std::string text = name->get<std::string>();
    const bool is_path = text.empty() || text.find_first_of("./~\\") == 0 ||
                         std::ranges::count(text, '/') > 1 || text.ends_with('/');
    if (!is_path) return text;
  }
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::vector<FileTensor> implied_tensors(const LanguageModel& model) {
  std::vector<FileTensor> tensors;
  for (const ExpectedTensor& tensor : model.tensors) {
    tensors.push_back({tensor.name, model.dtype.empty() ? "F32" : model.dtype, tensor.shape});
  }
  return tensors;
}

/// A head that is tied to the table of tokens may be in the file, too, but only as the same
/// numbers.
Status check_tied_head(const WeightsFile& file) {
  const std::vector<FileTensor>& tensors = file.tensors();
  const auto find = [&](std::string_view name) {
    return std::ranges::find_if(tensors,
                                [&](const FileTensor& t) { return t.name.ends_with(name); });
  };
  const auto head = find("lm_head.weight"), table = find("embed_tokens.weight");
  if (head == tensors.end() || table == tensors.end()) return {};
  const auto bytes_of = [&](auto it) {
    return file.bytes(static_cast<size_t>(it - tensors.begin()));
  };
  if (head->dtype == table->dtype && std::ranges::equal(bytes_of(head), bytes_of(table))) return {};
  return folder_error("MODEL_FILE_INVALID",
                      "tensor " + quoted_value(head->name) + " differs from " +
                          quoted_value(table->name) +
                          ", but config.json says tie_word_embeddings: true, with which they are "
                          "the same; expected false, or one table");
}

Status check_weights(const LanguageModel& model, const WeightsFile& file) {
  std::vector<TensorShape> shapes;
  for (const FileTensor& tensor : file.tensors()) {
    shapes.push_back({tensor.name, tensor.shape});
    if (converts_to_f32(tensor.dtype) || tensor.dtype == "I64" || tensor.dtype == "BOOL" ||
        tensor.dtype == "U8") {
      continue;  // tables of whole numbers, such as old masks, are not parameters
    }
    return folder_error("MODEL_UNSUPPORTED", "tensor " + quoted_value(tensor.name) +
                                                 " has the type " + tensor.dtype +
                                                 ", expected F32, BF16 or F16");
  }
  if (Status s = check_tensors(model, shapes); !s.ok()) return s;
  return model.tied_head ? check_tied_head(file) : Status();
}

Status write_merged(Files& files, const MergedWeights& merged, const fs::path& path) {
  constexpr int64_t kPieceBytes = 8 << 20;
  ASSIGN_OR_RETURN(const std::unique_ptr<FileFiller> filler,
                   files.create_file(path, merged.size()));
  std::string piece;
  for (int64_t offset = 0; offset < merged.size(); offset += kPieceBytes) {
    piece.clear();
    merged.read(offset, std::min(kPieceBytes, merged.size() - offset), piece);
    if (Status s = filler->write_at(offset, std::as_bytes(std::span(piece))); !s.ok()) return s;
  }
  return filler->finish();
}

/// Returns the shortest text that reads back as the same number. One with an exponent gets a
/// point, because readers of YAML 1.1 would read it as text otherwise.
std::string number_text(double value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  TRAINYARD_CHECK(error == std::errc(), "a double has less than 40 characters");
  std::string text(buffer, end);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

std::string value_text(const Attribute& value, bool is_flag) {
  if (const auto* i = std::get_if<int64_t>(&value)) {
    return is_flag ? (*i != 0 ? "true" : "false") : std::to_string(*i);
  }
  if (const auto* d = std::get_if<double>(&value)) return number_text(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  TRAINYARD_CHECK(list != nullptr, "families set no other types");
  std::string text = "[";
  for (const int64_t i : *list) text += (text.size() > 1 ? ", " : "") + std::to_string(i);
  return text + "]";
}

}  // namespace

Result<PretrainedFolder> read_pretrained_folder(const fs::path& folder) {
  PretrainedFolder read;
  read.path = folder;
  ASSIGN_OR_RETURN(read.config, read_config(folder));
  ASSIGN_OR_RETURN(read.model, read_model_config(read.config));
  read.title = title_of(folder, read.config);
  ASSIGN_OR_RETURN(read.weights, find_weights(folder));
  if (read.weights.empty()) {
    read.tensors = implied_tensors(read.model);
    return read;
  }
  const auto named = [&](Error error) {
    error.message = read.weights.filename().string() + ": " + error.message;
    return error;
  };
  const Result<WeightsFile> file = WeightsFile::open(read.weights);
  if (!file.ok()) return is_weights_index(read.weights) ? file.error() : named(file.error());
  if (Status s = check_weights(read.model, *file); !s.ok()) return named(s.error());
  read.tensors = file->tensors();
  return read;
}

Status write_pretrained(Files& files, const PretrainedFolder& read, const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(folder, ignored))) {
    return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS",
                      folder.string() + " exists; expected the name of a new folder");
  }
  if (read.weights.empty()) {
    return folder_error("FILE_NOT_FOUND", read.path.string() + " has no weights, expected " +
                                              kWeightFiles[0] + " or " + kWeightFiles[1]);
  }
  fs::path temporary = folder;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    if (Status s = files.remove_all(temporary); !s.ok()) return s;
    if (Status s = files.create_directories(temporary); !s.ok()) return s;
    ASSIGN_OR_RETURN(WeightsFile file, WeightsFile::open(read.weights));
    ASSIGN_OR_RETURN(const MergedWeights merged, MergedWeights::merge(std::move(file)));
    if (Status s = write_merged(files, merged, temporary / kWeightFiles[0]); !s.ok()) return s;
    const Status s =
        replace_file(files, temporary / "model.yaml", network_to_yaml(read.model.network));
    return s.ok() ? files.rename_durable(temporary, folder) : s;
  };
  Status s = write();
  if (!s.ok()) (void)files.remove_all(temporary);
  return s;
}

Result<TokenizerFiles> read_tokenizer_files(const fs::path& folder) {
  TokenizerFiles files;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (!is_tokenizer_file(name)) continue;
    ASSIGN_OR_RETURN(files[name], read_file(entry.path(), kTokenizerBytesMax));
  }
  if (ec) return file_error("cannot read", folder, ec.value());
  return files;
}

std::string network_to_yaml(const ModelSpec& network) {
  const PresetKind* const kind = find_preset_kind(network.preset);
  TRAINYARD_CHECK(kind != nullptr, "no preset is named " + network.preset);
  std::string text;
  size_t written = 0;
  // The order of the rules is that of the documentation.
  for (const AttributeRule& rule : kind->parameters) {
    const Attribute* const value = network.parameters.find(rule.name);
    if (value == nullptr) continue;
    text += (text.empty() ? "" : ", ") + std::string(rule.name) + ": " +
            value_text(*value, rule.kind == AttributeRule::Kind::kBool);
    ++written;
  }
  TRAINYARD_CHECK(written == network.parameters.items().size(),
                  "the preset " + network.preset + " has all parameters of its families");
  return network.preset + ": {" + text + "}\n";
}

}  // namespace trainyard
