// src/data/typed_writer.h: writes the arrays of a dataset to its data.safetensors.
#pragma once

#include <filesystem>
#include <string>

#include "src/base/files.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

/// Writes the file, syncs it and returns its SHA-256. Streamed images are written directly to their
/// places in the file; their sums and ranges are stored in `data`.
Result<std::string> write_typed_dataset(Files& files, const std::filesystem::path& path,
                                        TypedDataset& data);

}  // namespace trainyard
