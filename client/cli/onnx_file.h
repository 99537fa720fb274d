// client/cli/onnx_file.h: what `model export --format onnx` and `local export` share.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/session.h"
#include "src/base/result.h"

namespace trainyard::cli {

/// Refuses a value of --format that is not one of `formats`: "onnx", "safetensors or onnx".
Status unknown_format(const std::string& format, const std::string& formats);

/// Writes the model of `folder` as the ONNX file `file` and prints its name. Returns the exit code.
Result<int> write_onnx_file(Session& session, const std::filesystem::path& folder,
                            const std::string& file, bool overwrite);

}  // namespace trainyard::cli
