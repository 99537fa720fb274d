// client/init/sniff.h: recognizes the kind of data at a path, by its first bytes and its names.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::init {

enum class DataKind : uint8_t {
  kTable,      // CSV with any delimiter
  kJsonLines,  // one JSON object per line
  kLibsvm,
  kText,       // one text: a file, or a folder or archive of .txt files that are concatenated
  kTextFiles,  // .txt files with one folder per class
  kImages,
  kCifar,
  kArrays,  // NPZ or safetensors
  kNpy,
  kIdx,
};

struct Sniffed {
  DataKind kind = DataKind::kTable;
  char delimiter = ',';  // only for tables
  bool header = true;
};

/// Recognizes the data at `path`. INVALID_ARGUMENT/DATA_UNSUPPORTED if no dataset format can hold
/// it, with a way to convert it; NOT_FOUND/FILE_NOT_FOUND.
Result<Sniffed> sniff(const std::filesystem::path& path);

Error unsupported(std::string message);

}  // namespace trainyard::init
