// src/onnx/export_model.h: writes a trained model as one ONNX file, for other runtimes.
//
//   model.safetensors + model.json -> graph for inference -> nodes of ONNX, row by row of
//   op_table.h
//
// The batch is open: the file accepts any number of samples. Initializers have the names of the
// trained weights. docs/onnx.md describes inputs and outputs.
#pragma once

#include <filesystem>

#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::onnx {

/// Checks whether an export to `file` is possible, before a model is fetched for it:
/// ALREADY_EXISTS/FILE_EXISTS, NOT_FOUND/FILE_NOT_FOUND for the folder,
/// PERMISSION_DENIED/FILE_NOT_WRITABLE. With `overwrite`, `file` may be an existing regular file.
Status check_target(const std::filesystem::path& file, bool overwrite = false);

struct ExportOptions {
  bool overwrite = false;  // the file may exist, if it is a regular file
  bool raw_rows = false;   // for tables: one input per column, with its text or number
};

/// Writes `file` atomically and returns its size in bytes. Errors: those of check_target and
/// read_model, ONNX_UNSUPPORTED, ONNX_TOO_LARGE (a file of 2 GiB or more cannot be read), errors of
/// `files`.
Result<int64_t> export_model(Files& files, const std::filesystem::path& model_folder,
                             const std::filesystem::path& file, const ExportOptions& options = {});

}  // namespace trainyard::onnx
