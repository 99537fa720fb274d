// trainyard model upload|list|get|export|delete. evaluate.cc and model_import.cc contain the other
// model commands.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/gguf_model.h"
#include "client/cli/job_view.h"
#include "client/cli/onnx_file.h"
#include "client/cli/relative_name.h"
#include "client/cli/temporary_folder.h"
#include "client/cli/transformers_folder.h"
#include "client/cli/upload_view.h"
#include "client/lib/model_export.h"
#include "client/lib/names.h"
#include "proto/convert/run.h"
#include "src/base/text.h"
#include "src/onnx/export_model.h"
#include "src/pretrained/pretrained_folder.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::ListModelsRequest, v1::ListModelsResponse> kListModels{
    "ModelService/ListModels"};
constexpr client::Rpc<v1::DeleteModelRequest, google::protobuf::Empty> kDeleteModel{
    "ModelService/DeleteModel", client::Repeat::kNever};

std::string render_model(const v1::Model& m, bool colour) {
  std::string out = render_fields({{"model", std::string(relative_name(m.name()))},
                                   {"job", !m.job().empty() ? std::string(relative_name(m.job()))
                                           : m.has_schema() ? "none: imported"
                                                            : "none: weights only"},
                                   {"parameters", grouped(m.parameter_count())},
                                   {"tensors", grouped(m.tensor_count())},
                                   {"size", human_bytes(m.size_bytes())},
                                   {"dataset", std::string(relative_name(m.dataset()))},
                                   {"learned", m.schema().target()},
                                   {"created", local_time(m.create_time())},
                                   {"digest", m.digest()}},
                                  colour);
  if (!m.metrics().empty()) {
    Table table({{"METRIC"}, {"VALUE", true}});
    for (const auto& [key, value] :
         std::map<std::string, double>(m.metrics().begin(), m.metrics().end())) {
      table.add({key, human_number(value)});
    }
    out += "\n" + table.render(colour);
  }
  if (m.tensors().empty()) return out;
  constexpr int kTensorsShown = 20;
  Table table({{"TENSOR"}, {"TYPE"}, {"SHAPE"}});
  for (int i = 0; i < std::min(m.tensors_size(), kTensorsShown); ++i) {
    const v1::WeightTensor& t = m.tensors(i);
    table.add({t.name(), t.dtype(), to_engine(t).shape.to_string()});
  }
  out += "\n" + table.render(colour);
  if (m.tensors_size() > kTensorsShown) {
    out += "and " + std::to_string(m.tensors_size() - kTensorsShown) + " more; -o json has all\n";
  }
  return out;
}

struct WeightsUploadOptions {
  std::string file;
  std::string name;
};

/// Returns the weights' file of a language model, which is a folder or a GGUF file.
Result<std::string> weights_of_model(const std::string& path, TemporaryFolder& scratch) {
  ASSIGN_OR_RETURN(const ModelFolder found, model_folder(path, scratch, GgufParts::kAll));
  ASSIGN_OR_RETURN(const PretrainedFolder folder, read_pretrained_folder(found.path));
  if (!folder.weights.empty()) return folder.weights.string();
  return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                    path +
                        " has no weights, expected model.safetensors or "
                        "model.safetensors.index.json");
}

Command upload_weights_command() {
  auto o = std::make_shared<WeightsUploadOptions>();
  return {"model upload",
          "Upload weights of another program: a safetensors file",
          {"trainyard model upload resnet18.safetensors --name resnet18-imagenet"},
          "A job uses them by recipe.initial_weights: {model: NAME}. The server checks the file's "
          "header; content that\nit already has is not sent again. Without --name, the name is "
          "derived from the content. Prints the name.\nFILE may be the folder of a language model "
          "of transformers, whose weights are compared with its config.json, or a GGUF file.",
          [o](OptionSet& options) {
            options.positional("FILE", o->file, "the safetensors file");
            options.text("--name", "NAME", o->name, "the model's name");
          },
          [o](Session& session) -> Result<int> {
            TemporaryFolder scratch;
            std::error_code ignored;
            if (std::filesystem::is_directory(o->file, ignored) || names_gguf(o->file)) {
              ASSIGN_OR_RETURN(o->file, weights_of_model(o->file, scratch));
            }
            ASSIGN_OR_RETURN(const v1::Model model,
                             ensure_weights_shown(session, o->file, o->name));
            session.show(model, [&] { return std::string(relative_name(model.name())) + "\n"; },
                         {model.name()});
            session.hint("'trainyard model get " + safe_text(relative_name(model.name())) +
                         "' shows its tensors.");
            return static_cast<int>(client::kExitOk);
          }};
}

Result<int> run_model_list(Session& session) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListModelsRequest request;
  request.set_parent(server->parent());
  v1::ListModelsResponse all;
  do {
    ASSIGN_OR_RETURN(v1::ListModelsResponse page, server->call(kListModels, request));
    for (v1::Model& model : *page.mutable_models()) *all.add_models() = std::move(model);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  std::vector<std::string> names;
  for (const v1::Model& model : all.models()) names.push_back(model.name());
  session.show(
      all,
      [&] {
        if (names.empty()) return std::string();
        Table table({{.title = "NAME", .is_name = true},
                     {"PARAMETERS", true},
                     {"SIZE", true},
                     {.title = "METRICS", .shortens = true},
                     {"AGE", true}});
        for (const v1::Model& m : all.models()) {
          table.add({std::string(relative_name(m.name())), grouped(m.parameter_count()),
                     human_bytes(m.size_bytes()),
                     !m.has_schema()   ? "weights only"
                     : m.job().empty() ? "imported"
                                       : metric_summary(m.metrics()),
                     age_of(m.create_time())});
        }
        return table.render(session.out());
      },
      names);
  if (names.empty()) session.hint("No models yet. A job has a model once it has SUCCEEDED.");
  return static_cast<int>(client::kExitOk);
}

Command get_model_command() {
  auto name = std::make_shared<std::string>();
  return {"model get",
          "Show a trained model",
          {"trainyard model get digits-1"},
          "",
          [name](OptionSet& options) {
            options.positional("MODEL", *name, "the model's name; a trained model has its job's");
          },
          [name](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string full, session.full_name("models", *name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            ASSIGN_OR_RETURN(const v1::Model model, server->call(client::rpc::kGetModel, full));
            session.show(model, [&] { return render_model(model, session.out().colour()); },
                         {model.name()});
            return static_cast<int>(client::kExitOk);
          }};
}

struct ModelExportOptions {
  std::string name;
  std::string format = "safetensors";
  std::string out;
  onnx::ExportOptions file;
};

Result<int> export_folder(Session& session, client::Client& server, const std::string& name,
                          const std::string& folder, bool overwrite) {
  std::error_code ignored;
  for (const char* file : {"model.safetensors", "model.json"}) {
    if (overwrite || !std::filesystem::exists(std::filesystem::path(folder) / file, ignored))
      continue;
    return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS",
                      folder + " has a " + file +
                          " already; --overwrite replaces it, --out names another folder");
  }
  ASSIGN_OR_RETURN(const auto files,
                   client::export_model(server, name, folder, session.interrupted()));
  session.out().line(session.format() == Format::kJson || session.format() == Format::kJsonl
                         ? client::export_json(folder, files)
                         : folder);
  for (const client::ExportedFile& file : files) {
    session.hint("  " + file.filename + "  " + human_bytes(file.size_bytes));
  }
  return static_cast<int>(client::kExitOk);
}

// Downloads the model's folder from the server and converts it to ONNX in this program.
Result<int> export_onnx(Session& session, client::Client& server, const std::string& name,
                        const std::string& file, const onnx::ExportOptions& options) {
  if (Status s = check_onnx_target(file, options.overwrite); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const v1::Model model, server.call(client::rpc::kGetModel, name));
  if (!model.has_schema()) {
    return make_error(ErrorCode::kFailedPrecondition, "EXPORT_UNSUPPORTED",
                      safe_text(relative_name(name)) +
                          " has weights only and no network; its format is safetensors");
  }
  TemporaryFolder folder;
  auto fetched = client::export_model(server, name, folder.path(), session.interrupted());
  if (!fetched.ok()) return std::move(fetched).error();
  return write_onnx_file(session, folder.path(), file, options);
}

// Downloads the model's folder from the server and converts it in this program.
Result<int> export_transformers(Session& session, client::Client& server, const std::string& name,
                                const std::string& target, bool overwrite) {
  if (Status s = check_transformers_target(target, overwrite); !s.ok()) {
    return std::move(s).error();
  }
  TemporaryFolder folder;
  auto fetched = client::export_model(server, name, folder.path(), session.interrupted());
  if (!fetched.ok()) return std::move(fetched).error();
  return write_transformers_folder(session, folder.path(), target, overwrite);
}

Command export_model_command() {
  auto o = std::make_shared<ModelExportOptions>();
  return {
      "model export",
      "Download a trained model with its preprocessing: safetensors, ONNX or transformers",
      {"trainyard model export digits-1", "trainyard model export digits-1 --out models/digits",
       "trainyard model export digits-1 --format onnx --out digits.onnx",
       "trainyard model export support-1 --format transformers --out support"},
      "safetensors: model.safetensors and model.json in a folder, by default named after the "
      "model;\nwith recipe.lora also the adapter, which PEFT loads.\nonnx: one new file, by "
      "default "
      "MODEL.onnx, that takes raw pixels and numbers.\ntransformers: a language model as a folder "
      "with config.json, weights and tokenizer.\nThe files are checked against the server's "
      "SHA-256 digests first. Prints the folder or file.\n"
      "In Python, trainyard.load(PATH) predicts with either, without a server.",
      [o](OptionSet& options) {
        options.positional("MODEL", o->name, "the model's name; a trained model has its job's");
        options.text("--format", "FORMAT", o->format,
                     "safetensors, the default, onnx or transformers",
                     {"safetensors", "onnx", "transformers"});
        options.text("--out", "PATH", o->out, "where to write, default the model's name");
        add_raw_rows_option(options, o->file.raw_rows);
        options.flag("--overwrite", o->file.overwrite, "replace existing files");
      },
      [o](Session& session) -> Result<int> {
        const bool is_onnx = o->format == "onnx";
        const bool is_transformers = o->format == "transformers";
        if (!is_onnx && !is_transformers && o->format != "safetensors") {
          return unknown_format(o->format, "safetensors, onnx or transformers").error();
        }
        if (o->file.raw_rows && !is_onnx) {
          return usage_error("--raw-rows: only with --format onnx");
        }
        ASSIGN_OR_RETURN(const std::string full, session.full_name("models", o->name));
        ASSIGN_OR_RETURN(client::Client * server, session.client());
        const std::string name(client::short_name(full));
        if (is_onnx) {
          return export_onnx(session, *server, full, o->out.empty() ? name + ".onnx" : o->out,
                             o->file);
        }
        if (is_transformers) {
          return export_transformers(session, *server, full, o->out.empty() ? name : o->out,
                                     o->file.overwrite);
        }
        return export_folder(session, *server, full, o->out.empty() ? name : o->out,
                             o->file.overwrite);
      }};
}

struct ModelDeleteOptions {
  std::string name;
  ConfirmOptions confirm;
};

Command delete_model_command() {
  auto o = std::make_shared<ModelDeleteOptions>();
  return {"model delete",
          "Delete a trained model",
          {"trainyard model delete digits-1 --yes"},
          "",
          [o](OptionSet& options) {
            options.positional("MODEL", o->name, "the model's name; a trained model has its job's");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) -> Result<int> {
            if (Status sure = confirm_delete(session, o->confirm, "model", {o->name}); !sure.ok()) {
              return std::move(sure).error();
            }
            ASSIGN_OR_RETURN(const std::string full, session.full_name("models", o->name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            if (Status deleted = server->call(kDeleteModel, full); !deleted.ok())
              return std::move(deleted).error();
            session.err().line("deleted model " + safe_text(relative_name(full)));
            return static_cast<int>(client::kExitOk);
          }};
}

}  // namespace

std::vector<Command> model_commands() {
  std::vector<Command> list;
  list.push_back({"model list",
                  "List trained models",
                  {"trainyard model list"},
                  "",
                  [](OptionSet&) {},
                  run_model_list});
  list.push_back(upload_weights_command());
  list.push_back(get_model_command());
  list.push_back(model_evaluate_command());
  list.push_back(export_model_command());
  list.push_back(import_model_command());
  list.push_back(delete_model_command());
  return list;
}

}  // namespace trainyard::cli
