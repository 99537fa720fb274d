// client/init/sniff.h: what kind of data a path holds, by its first bytes and its names.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::init {

enum class DataKind : uint8_t {
  kTable,      // CSV, whatever separates its fields
  kJsonLines,  // an object on each line
  kLibsvm,
  kText,       // one text, or a folder or an archive of .txt files that are one
  kTextFiles,  // .txt files in a folder for each class
  kImages,
  kCifar,
  kArrays,  // NPZ or safetensors
  kNpy,
  kIdx,
};

struct Sniffed {
  DataKind kind = DataKind::kTable;
  char delimiter = ',';  // of a table
  bool header = true;
};

/// INVALID_ARGUMENT/DATA_UNSUPPORTED for what no format of a dataset holds, with the way to convert
/// it; NOT_FOUND/FILE_NOT_FOUND.
Result<Sniffed> sniff(const std::filesystem::path& path);

/// How the fields of a text's records are separated, and whether the first one names the columns.
/// `text` ends where a record does.
struct TableShape {
  char delimiter = ',';
  size_t fields = 1;    // that most records have
  double agreeing = 0;  // the share of those
  size_t records = 0;
  bool header = true;
};
TableShape find_table_shape(std::string_view text);

Error unsupported(std::string message);

}  // namespace trainyard::init
