// src/data/typed_writer.h: the arrays of a dataset as its data.safetensors.
#pragma once

#include <filesystem>
#include <string>

#include "src/base/files.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

/// Writes the file, syncs it and returns its SHA-256. Images that are a stream go straight to their
/// places; their sums are kept in `data`.
Result<std::string> write_typed_dataset(Files& files, const std::filesystem::path& path,
                                        TypedDataset& data);

}  // namespace trainyard
