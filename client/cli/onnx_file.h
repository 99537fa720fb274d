// client/cli/onnx_file.h: shared by `model export --format onnx` and `local export`.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/options.h"
#include "client/cli/session.h"
#include "src/base/result.h"
#include "src/onnx/export_model.h"

namespace trainyard::cli {

/// Returns the error for an unknown value of --format; `formats` lists the known ones: "onnx",
/// "safetensors or onnx".
Status unknown_format(const std::string& format, const std::string& formats);

/// Does the same as onnx::check_target(), with errors that mention --overwrite.
Status check_onnx_target(const std::string& file, bool overwrite);

/// Converts the model in `folder` to the ONNX file `file`, and prints the file's name. Returns the
/// exit code.
Result<int> write_onnx_file(Session& session, const std::filesystem::path& folder,
                            const std::string& file, const onnx::ExportOptions& options);

/// Adds the flag --raw-rows, which both commands have.
void add_raw_rows_option(OptionSet& options, bool& raw_rows);

}  // namespace trainyard::cli
