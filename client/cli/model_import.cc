// trainyard model import: converts an ONNX file, or the folder or GGUF file of a language model, to
// a network as a job file has it and weights.
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/gguf_model.h"
#include "client/cli/job_view.h"
#include "client/cli/relative_name.h"
#include "client/cli/temporary_folder.h"
#include "client/cli/upload_view.h"
#include "src/artifact/model_artifact.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/onnx/import_model.h"
#include "src/pretrained/pretrained_folder.h"

namespace trainyard::cli {
namespace {

struct ModelImportOptions {
  std::string file;
  std::string out, name;
  std::string output;
  std::vector<std::string> sizes;
  bool unbatched = false;
};

// Parses a size such as "seq=128".
Status read_size(const std::string& text, std::map<std::string, int64_t>& sizes) {
  const size_t equals = text.find('=');
  int64_t size = 0;
  if (equals != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, size);
    if (error != std::errc() || stop != end) size = 0;
  }
  if (size < 1)
    return usage_error("--size: " + quoted_value(text) + ", expected NAME=SIZE, such as seq=128");
  sizes[text.substr(0, equals)] = size;
  return {};
}

std::string sample_text(const Shape& shape) {
  const std::string text = shape.to_string();
  return "[N, " + text.substr(1);
}

/// Returns the rules as parameter groups of a recipe: [{match: "fc.*", freeze: true}].
std::string groups_text(const std::vector<onnx::FreezeRule>& rules) {
  std::string text;
  for (const onnx::FreezeRule& rule : rules) {
    text += (text.empty() ? "[{match: \"" : ", {match: \"") + rule.match +
            (rule.freeze ? "\", freeze: true}" : "\", freeze: false}");
  }
  return text + "]";
}

/// Describes the model as one that was trained on text with the folder's tokenizer. `name`: of the
/// folder or file that the user named.
Result<ModelInfo> describe(const PretrainedFolder& folder, const std::string& name) {
  ModelInfo info;
  info.model = folder.model.network;
  info.parameter_count = folder.model.parameter_count();
  info.preprocessing.context_length = folder.model.positions_max;
  info.schema.kind = DatasetSchema::Kind::kText;
  info.schema.target.kind = TargetSchema::Kind::kNextToken;
  info.schema.text.tokenizer = TokenizerKind::kPretrained;
  ASSIGN_OR_RETURN(TokenizerFiles files, read_tokenizer_files(folder.path));
  if (Status s = set_tokenizer_files(std::move(files), info.schema.text); !s.ok()) {
    return std::move(s).error();
  }
  const int64_t tokens = info.schema.text.vocabulary_size();
  if (tokens <= folder.model.vocabulary) return info;
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                    name + ": the tokenizer has " + grouped(tokens) +
                        " tokens, but the table of config.json (vocab_size) has " +
                        grouped(folder.model.vocabulary) + " rows");
}

/// Makes a model of the server, which generates without having been trained here.
Result<int> import_to_server(Session& session, const ModelImportOptions& o,
                             const PretrainedFolder& folder) {
  if (folder.weights.empty()) {
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                      folder.path.string() +
                          " has no weights, expected model.safetensors or "
                          "model.safetensors.index.json");
  }
  if (folder.model.classes > 0) {
    return make_error(ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
                      folder.path.string() + ": config.json: architectures: is a classifier of " +
                          std::to_string(folder.model.classes) +
                          " classes, expected a model that generates. A job with model.pretrained "
                          "trains the classifier further");
  }
  ASSIGN_OR_RETURN(const ModelInfo info, describe(folder, o.file));
  TemporaryFolder scratch;
  if (Status s = write_model_info(local_files(), scratch.path(), info); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(
      const v1::Model model,
      import_model_shown(session, folder.weights, scratch.path() / "model.json", o.name));
  session.show(model, [&] { return std::string(relative_name(model.name())) + "\n"; },
               {model.name()});
  session.hint("'trainyard chat " + safe_text(relative_name(model.name())) +
               "' talks with it, 'trainyard generate' continues texts.");
  return static_cast<int>(client::kExitOk);
}

/// Imports a language model: a folder of transformers or a GGUF file.
Result<int> import_folder(Session& session, const ModelImportOptions& o) {
  if (!o.output.empty() || !o.sizes.empty() || o.unbatched) {
    return usage_error("--output-name, --size and --unbatched are for ONNX files, and " +
                       quoted_value(o.file) + " is a language model");
  }
  TemporaryFolder scratch;
  ASSIGN_OR_RETURN(const ModelFolder found, model_folder(o.file, scratch, GgufParts::kAll));
  ASSIGN_OR_RETURN(const PretrainedFolder folder, read_pretrained_folder(found.path));
  if (o.out.empty()) return import_to_server(session, o, folder);
  if (Status s = write_pretrained(user_files(), folder, o.out); !s.ok()) {
    return std::move(s).error();
  }
  const LanguageModel& model = folder.model;
  if (session.format() == Format::kJson || session.format() == Format::kJsonl) {
    const nlohmann::ordered_json object = {
        {"folder", o.out},
        {"title", folder.title},
        {"family", model.family},
        {"network", model.network.preset},
        {"vocabulary", model.vocabulary},
        {"context_length_max", model.positions_max},
        {"parameter_count", std::to_string(model.parameter_count())},
        {"parameter_groups", nlohmann::ordered_json::array()},
        {"notes", model.notes}};
    session.out().line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return static_cast<int>(client::kExitOk);
  }
  session.out().line(o.out);
  session.hint("  " + model.title + ", " + grouped(model.parameter_count()) +
               " parameters, tokens below " + std::to_string(model.vocabulary) +
               ", texts of up to " + grouped(model.positions_max) + " tokens");
  for (const std::string& note : model.notes) session.hint("  " + safe_text(note));
  return static_cast<int>(client::kExitOk);
}

Result<int> run_model_import(Session& session, const ModelImportOptions& o) {
  if (!o.out.empty() && !o.name.empty()) {
    return usage_error("--out writes a folder here, and --name names a model of the server");
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(o.file, ignored) || names_gguf(o.file)) {
    return import_folder(session, o);
  }
  if (!o.name.empty())
    return usage_error("--name is for the folder or GGUF file of a language model");
  if (o.out.empty()) return usage_error("--out is required: the name of a new folder");
  onnx::ImportOptions options{.sizes = {}, .output = o.output, .batched = !o.unbatched};
  for (const std::string& size : o.sizes) {
    if (Status s = read_size(size, options.sizes); !s.ok()) return std::move(s).error();
  }
  ASSIGN_OR_RETURN(const onnx::ImportedModel model, onnx::import_model(o.file, options));
  if (Status s = onnx::write_imported(user_files(), model, o.out); !s.ok()) {
    return std::move(s).error();
  }
  if (session.format() == Format::kJson || session.format() == Format::kJsonl) {
    nlohmann::ordered_json groups = nlohmann::ordered_json::array();
    for (const onnx::FreezeRule& rule : model.freezes) {
      groups.push_back({{"match", rule.match}, {"freeze", rule.freeze}});
    }
    const nlohmann::ordered_json object = {
        {"folder", o.out},
        {"input", {{"name", model.input}, {"shape", model.input_shape.dims()}}},
        {"output", {{"name", model.output}, {"shape", model.output_shape.dims()}}},
        {"vocabulary", model.vocabulary},
        {"opset", model.opset},
        {"nodes", model.nodes},
        {"folded_nodes", model.folded_nodes},
        {"layers", model.layers.size()},
        {"parameter_count", std::to_string(model.parameter_count)},
        {"parameter_groups", groups},
        {"notes", model.notes}};
    session.out().line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return static_cast<int>(client::kExitOk);
  }
  session.out().line(o.out);
  session.hint("  input   " + safe_text(model.input) + " " + sample_text(model.input_shape) +
               (model.vocabulary > 0 ? ", tokens below " + std::to_string(model.vocabulary) : ""));
  session.hint("  output  " + safe_text(model.output) + " " + sample_text(model.output_shape));
  session.hint("  " + std::to_string(model.layers.size()) + " layers, " +
               grouped(model.parameter_count) + " parameters, from " + std::to_string(model.nodes) +
               " nodes of opset " + std::to_string(model.opset) + ", " +
               std::to_string(model.folded_nodes) + " of them computed");
  for (const std::string& note : model.notes) session.hint("  " + safe_text(note));
  if (!model.freezes.empty()) {
    session.hint(
        "  The file does not train all of its weights; the recipe needs parameter_groups: " +
        groups_text(model.freezes));
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command import_model_command() {
  auto o = std::make_shared<ModelImportOptions>();
  return {
      "model import",
      "Import a language model, or convert an ONNX file to layers and weights",
      {"trainyard model import resnet.onnx --out resnet",
       "trainyard model import bert.onnx --out bert --size seq=128",
       "trainyard model import SmolLM2-135M-Instruct/ --name smollm2",
       "trainyard model import Qwen3-0.6B-Q8_0.gguf --name qwen3"},
      "The folder of a language model as transformers saves it, or a GGUF file, becomes a model of "
      "the "
      "server, with\nwhich 'chat' and 'generate' work. An ONNX file is converted here, without a "
      "server; so is a language model\nwith --out. That writes model.yaml, the network as under "
      "'model:' in a job file, "
      "and model.safetensors, its "
      "weights.\nReports all unsupported operations, or settings of config.json, together. Prints "
      "the folder.",
      [o](OptionSet& options) {
        options.positional(
            "FILE", o->file,
            "an ONNX file of opset 7 to 22, a folder that transformers saved, or a GGUF "
            "file");
        options.text("--out", "FOLDER", o->out, "the new folder");
        options.text("--name", "NAME", o->name,
                     "of a language model: the name of the model on the server");
        options.text("--output-name", "NAME", o->output,
                     "the file's output to use as the model's, default the first");
        options.texts("--size", "NAME=SIZE", o->sizes,
                      "the size of a dimension that the file leaves open, other than the batch");
        options.flag("--unbatched", o->unbatched,
                     "the file computes one sample: it has no batch dimension");
      },
      [o](Session& session) { return run_model_import(session, *o); }};
}

}  // namespace trainyard::cli
