// trainyard local run, check, export: work on this machine without a server. trainyard-local
// (client/local) implements run and check.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/local_work.h"
#include "client/cli/onnx_file.h"

namespace trainyard::cli {
namespace {

struct LocalExportOptions {
  std::string folder;
  std::string format = "onnx";
  std::string out = "model.onnx";
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
          "Write a model folder as an ONNX file, without a server",
          {"trainyard local export runs/1/model --out digits.onnx"},
          "FOLDER is one that 'local run --out' or 'model export' wrote. The ONNX file includes "
          "the preprocessing, so it\ntakes raw pixels and numbers. Prints the file's name.",
          [o](OptionSet& options) {
            options.positional("FOLDER", o->folder,
                               "a folder with model.safetensors and model.json");
            options.text("--format", "FORMAT", o->format, "onnx, the default", {"onnx"});
            options.text("--out", "FILE", o->out, "the new file, default model.onnx");
            add_raw_rows_option(options, o->file.raw_rows);
            options.flag("--overwrite", o->file.overwrite, "replace an existing file");
          },
          [o](Session& session) -> Result<int> {
            if (o->format != "onnx") return unknown_format(o->format, "onnx").error();
            return write_onnx_file(session, o->folder, o->out, o->file);
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
