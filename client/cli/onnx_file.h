// client/cli/onnx_file.h: what `model export --format onnx` and `local export` share.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/options.h"
#include "client/cli/session.h"
#include "src/base/result.h"
#include "src/onnx/export_model.h"

namespace trainyard::cli {

/// Refuses a value of --format that is not one of `formats`: "onnx", "safetensors or onnx".
Status unknown_format(const std::string& format, const std::string& formats);

/// onnx::check_target, which cannot know how a file is replaced here.
Status check_onnx_target(const std::string& file, bool overwrite);

/// Writes the model of `folder` as the ONNX file `file` and prints its name. Returns the exit code.
Result<int> write_onnx_file(Session& session, const std::filesystem::path& folder,
                            const std::string& file, const onnx::ExportOptions& options);

/// The flag --raw-rows of both.
void add_raw_rows_option(OptionSet& options, bool& raw_rows);

}  // namespace trainyard::cli
