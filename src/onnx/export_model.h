// src/onnx/export_model.h: a trained model folder as one ONNX file, which runtimes elsewhere run.
//
//   model.safetensors + model.json -> graph for inference -> nodes of ONNX, row by row of
//   op_table.h
//
// The batch is open: the file takes any number of samples. Weights are initializers under the names
// that training gave them. docs/onnx.md tells what goes in and comes out.
#pragma once

#include <filesystem>

#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::onnx {

/// Refuses what no export to `file` can succeed at, before a model is fetched for it:
/// ALREADY_EXISTS/FILE_EXISTS, NOT_FOUND/FILE_NOT_FOUND for its folder,
/// PERMISSION_DENIED/FILE_NOT_WRITABLE. With `overwrite` a regular file may be there.
Status check_target(const std::filesystem::path& file, bool overwrite = false);

struct ExportOptions {
  bool overwrite = false;  // a regular file may be there
  bool raw_rows = false;   // a table's file has one input for each column, its text or number
};

/// Writes `file` whole or not at all. Returns its size in bytes. Refusals: those of check_target
/// and read_model, ONNX_UNSUPPORTED, ONNX_TOO_LARGE (a file of 2 GiB or more cannot be read),
/// errors of `files`.
Result<int64_t> export_model(Files& files, const std::filesystem::path& model_folder,
                             const std::filesystem::path& file, const ExportOptions& options = {});

}  // namespace trainyard::onnx
