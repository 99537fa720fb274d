#include "src/pretrained/export_folder.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "src/artifact/model_artifact.h"
#include "src/checkpoint/typed_bytes.h"
#include "src/data/text/tokenizer.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"
#include "src/models/families/config_writer.h"
#include "src/models/naming/naming.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kWeightsName = "model.safetensors";

Error unsupported(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "EXPORT_UNSUPPORTED", what);
}

/// Returns the rows of a tensor of the model; 0 if it has none of this name.
int64_t rows_of(const LoadedModel& model, std::string_view tensor) {
  const TensorView* const view = model.weights.find(tensor);
  return view == nullptr || view->type.shape.rank() == 0 ? 0 : view->type.shape[0];
}

Result<ConfigSettings> settings_of(const LoadedModel& model) {
  const ModelSpec& network = model.info.model;
  const bool is_gpt2 = network.preset == "gpt2";
  ConfigSettings settings;
  settings.vocabulary = rows_of(model, is_gpt2 ? "wte.weight" : "embed.weight");
  const DatasetSchema& schema = model.info.schema;
  settings.classes = schema.target.classes;
  const int64_t context = std::max<int64_t>(
      schema.next_token() ? model.info.preprocessing.context_length : schema.text.max_length, 1);
  settings.positions =
      is_gpt2 ? rows_of(model, "wpe.weight") : network.parameters.get_int("positions_max", context);
  const TextSchema& text = schema.text;
  // A classifier needs the padding to find a text's last token.
  if (!schema.next_token()) settings.padding_token = text.padding_id();
  if (text.tokenizer != TokenizerKind::kPretrained) return settings;
  const PretrainedTokenizer tokenizer = pretrained_tokenizer(text);
  settings.begin_token = tokenizer.begin_token();
  if (tokenizer.end_token() >= 0) settings.end_token = tokenizer.end_token();
  if (schema.next_token()) settings.padding_token = tokenizer.padding_token();
  return settings;
}

/// Returns the naming scheme by which all tensors of the model have a name that the family expects.
const NamingScheme* find_scheme(const LoadedModel& model, const LanguageModel& family) {
  std::set<std::string, std::less<>> expected;
  for (const ExpectedTensor& tensor : family.tensors) expected.insert(tensor.name);
  for (const NamingScheme& scheme : naming_schemes()) {
    if (scheme.presets != model.info.model.preset) continue;
    const bool has_all = std::ranges::all_of(model.weights.tensors(), [&](const TensorView& t) {
      const auto found = library_names(scheme, t.name);
      return found && found->names.size() == 1 && expected.contains(found->names.front());
    });
    if (has_all) return &scheme;
  }
  return nullptr;
}

std::vector<std::byte> transposed(const TensorView& matrix) {
  const int64_t rows = matrix.type.shape[0], columns = matrix.type.shape[1];
  std::vector<std::byte> bytes(matrix.bytes.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(bytes.data() + (c * rows + r) * sizeof(float),
                  matrix.bytes.data() + (r * columns + c) * sizeof(float), sizeof(float));
    }
  }
  return bytes;
}

/// The model's tensors by the library's names.
struct NamedTensors {
  std::vector<std::vector<std::byte>> storage;  // owns the bytes of widened and transposed tensors
  std::vector<TensorView> tensors;
};

NamedTensors rename_tensors(const LoadedModel& model, const NamingScheme& scheme) {
  NamedTensors out;
  for (const TensorView& t : model.weights.tensors()) {
    const auto found = library_names(scheme, t.name);
    TensorView view{found->names.front(), t.type, typed_bytes(t, out.storage.emplace_back())};
    if (found->arrangement == Arrangement::kTransposed) {
      out.storage.push_back(transposed(view));
      view.type.shape = Shape{t.type.shape[1], t.type.shape[0]};
      view.bytes = out.storage.back();
    }
    out.tensors.push_back(std::move(view));
  }
  return out;
}

Status check_written(const LanguageModel& family, const NamedTensors& named) {
  std::vector<TensorShape> shapes;
  for (const TensorView& t : named.tensors) shapes.push_back({t.name, t.type.shape});
  return check_tensors(family, shapes);
}

/// The files of the new folder beside the weights.
std::map<std::string, std::string> texts_of(const LoadedModel& model, const WrittenConfig& config) {
  std::map<std::string, std::string> texts;
  const TextSchema& text = model.info.schema.text;
  if (text.files != nullptr) texts.insert(text.files->begin(), text.files->end());
  texts[kConfigName] = config.text;
  return texts;
}

}  // namespace

Status check_export_folder(const fs::path& folder, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(folder, ignored))) return {};
  const bool is_folder = fs::is_directory(folder, ignored);
  if (is_folder && fs::is_empty(folder, ignored)) return {};
  const bool is_model = is_folder && fs::exists(folder / kConfigName, ignored);
  if (overwrite && is_model) return {};
  return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS",
                    folder.string() + " exists; expected the name of a new folder" +
                        (is_model    ? ", or --overwrite"
                         : overwrite ? ", or of one with a config.json"
                                     : ""));
}

Result<ExportedFolder> export_language_model(Files& files, const fs::path& model,
                                             const fs::path& folder, bool overwrite) {
  if (Status s = check_export_folder(folder, overwrite); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const LoadedModel loaded, read_model(model));
  ASSIGN_OR_RETURN(const ConfigSettings settings, settings_of(loaded));
  ASSIGN_OR_RETURN(const WrittenConfig config, write_model_config(loaded.info.model, settings));
  ASSIGN_OR_RETURN(const LanguageModel family, read_model_config(config.text));
  const NamingScheme* const scheme = find_scheme(loaded, family);
  if (scheme == nullptr) {
    return unsupported("the model has tensors that " + family.title + " of transformers has not");
  }
  const NamedTensors named = rename_tensors(loaded, *scheme);
  if (Status s = check_written(family, named); !s.ok()) return std::move(s).error();

  fs::path temporary = folder;
  temporary += ".tmp";
  if (Status s = files.remove_all(temporary); !s.ok()) return std::move(s).error();
  if (Status s = files.create_directories(temporary); !s.ok()) return std::move(s).error();
  ExportedFolder exported{config.family, {kWeightsName}, {}};
  const SafetensorsMetadata metadata = {{"format", "pt"}};
  if (auto digest = write_safetensors(files, temporary / kWeightsName, named.tensors, metadata);
      !digest.ok()) {
    return std::move(digest).error();
  }
  for (const auto& [name, text] : texts_of(loaded, config)) {
    if (Status s = replace_file(files, temporary / name, text); !s.ok()) {
      return std::move(s).error();
    }
    exported.files.push_back(name);
  }
  if (loaded.info.schema.text.files == nullptr) {
    exported.warnings.push_back(
        "The model's tokenizer is not one of transformers, so the folder has no tokenizer.");
  }
  if (Status s = install_model(files, temporary, folder); !s.ok()) return std::move(s).error();
  std::ranges::sort(exported.files);
  return exported;
}

}  // namespace trainyard
