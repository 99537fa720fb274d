// trainyard local export: a model folder of `local run` or `model export`, in another format.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/onnx_file.h"

namespace trainyard::cli {
namespace {

struct LocalExportOptions {
  std::string folder;
  std::string format = "onnx";
  std::string out = "model.onnx";
  onnx::ExportOptions file;
};

}  // namespace

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
            options.flag("--overwrite", o->file.overwrite, "replace a file that is there");
          },
          [o](Session& session) -> Result<int> {
            if (o->format != "onnx") return unknown_format(o->format, "onnx").error();
            return write_onnx_file(session, o->folder, o->out, o->file);
          }};
}

}  // namespace trainyard::cli
