// trainyard local run, check, export: work on this machine without a server. trainyard-local
// (client/local) implements run and check.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/local_work.h"
#include "client/cli/onnx_file.h"
#include "client/cli/transformers_folder.h"

namespace trainyard::cli {
namespace {

struct LocalExportOptions {
  std::string folder;
  std::string format = "onnx";
  std::string out;
  onnx::ExportOptions file;
};

Command local_run_command() {
  auto o = std::make_shared<LocalRunOptions>();
  return {
      "local run",
      "Train here, in this process, without a server",
      {"trainyard local run examples/digits_cnn.yaml", "trainyard local run spec.yaml --out runs/1",
       "trainyard local run spec.yaml --set recipe.steps=10 --threads 1",
       "trainyard local run spec.yaml --profile --trace step.json"},
      "With --out the model goes to FOLDER/model and checkpoints to FOLDER/checkpoints; after "
      "Ctrl-C, the same\ncommand resumes from the last checkpoint. Without --out nothing is "
      "kept.\nWith --profile it runs and times some steps, node by node, and does nothing else.",
      [o](OptionSet& options) {
        options.positional("SPEC", o->spec, "the job's spec file; its dataset needs a path");
        options.texts("--set", "PATH=VALUE", o->sets,
                      "change a field of the spec; may be given several times");
        options.text("--out", "FOLDER", o->out, "keep the model and checkpoints here");
        options.text("--tensorboard", "FOLDER", o->tensorboard,
                     "write the metrics there as TensorBoard event files while training");
        options.flag("--profile", o->profile,
                     "show where a step's time goes, node by node, instead of training");
        options.text(
            "--trace", "FILE.json", o->trace,
            "as --profile, and write some steps to this file for Perfetto or chrome://tracing");
        options.text("--device", "DEVICE", o->device,
                     "cpu, gpu, gpu-N, or several as gpu-0,gpu-1; default: the spec's, auto is cpu",
                     {"cpu", "gpu"});
        options.integer("--threads", "N", o->threads,
                        "CPU threads; default: the spec's, then all cores");
      },
      [o](Session& session) -> Result<int> {
        ASSIGN_OR_RETURN(const LocalWork* local, session.local());
        return local->run(session, *o);
      }};
}

Command local_export_command() {
  auto o = std::make_shared<LocalExportOptions>();
  return {"local export",
          "Write a model folder as an ONNX file or a folder of transformers, without a server",
          {"trainyard local export runs/1/model --out digits.onnx",
           "trainyard local export runs/2/model --format transformers --out support"},
          "FOLDER is one that 'local run --out' or 'model export' wrote. The ONNX file includes "
          "the preprocessing, so it\ntakes raw pixels and numbers. A language model can become a "
          "folder with config.json, weights and tokenizer.\nPrints the file or folder.",
          [o](OptionSet& options) {
            options.positional("FOLDER", o->folder,
                               "a folder with model.safetensors and model.json");
            options.text("--format", "FORMAT", o->format, "onnx, the default, or transformers",
                         {"onnx", "transformers"});
            options.text("--out", "PATH", o->out,
                         "the new file or folder, default model.onnx or transformers");
            add_raw_rows_option(options, o->file.raw_rows);
            options.flag("--overwrite", o->file.overwrite, "replace an existing file");
          },
          [o](Session& session) -> Result<int> {
            const bool is_transformers = o->format == "transformers";
            if (!is_transformers && o->format != "onnx") {
              return unknown_format(o->format, "onnx or transformers").error();
            }
            if (!is_transformers) {
              return write_onnx_file(session, o->folder, o->out.empty() ? "model.onnx" : o->out,
                                     o->file);
            }
            if (o->file.raw_rows) return usage_error("--raw-rows: only with --format onnx");
            return write_transformers_folder(
                session, o->folder, o->out.empty() ? "transformers" : o->out, o->file.overwrite);
          }};
}

Command local_check_command() {
  auto device = std::make_shared<std::string>("cpu");
  return {
      "local check",
      "Check that a device computes correctly, without a server",
      {"trainyard local check --device gpu-0"},
      "Trains small networks of each kind for a few steps and compares their losses and weights "
      "with the CPU's.\nThe daemon does the same before it starts the first job on a GPU.",
      [device](OptionSet& options) {
        options.text("--device", "DEVICE", *device, "cpu, the default, or gpu-N");
      },
      [device](Session& session) -> Result<int> {
        ASSIGN_OR_RETURN(const LocalWork* local, session.local());
        return local->check(session, *device);
      }};
}

}  // namespace

std::vector<Command> local_commands() {
  return {local_run_command(), local_export_command(), local_check_command()};
}

}  // namespace trainyard::cli
