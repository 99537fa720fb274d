// client/cli/row_files.h: converts files of rows in formats that a Predict request does not support
// to supported ones.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::cli {

struct RowText {
  bool idx = false;  // true: IDX; false: CSV with commas
  bool header = false;
  std::string bytes;
};

/// Converts an NPY file: images of bytes to IDX, all other numbers to CSV. Each number in the CSV
/// is parsed back to the same float32, and NaN to a missing value. `bytes` may be compressed by
/// gzip.
Result<RowText> rows_of_npy(std::string_view bytes);

/// Converts JSON lines to CSV with the members as columns; members that a line lacks become empty
/// fields.
Result<RowText> rows_of_json_lines(std::string_view bytes);

}  // namespace trainyard::cli
