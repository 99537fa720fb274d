// client/cli/row_files.h: converts files of rows that a Predict request does not support to ones
// that it does.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::cli {

struct RowText {
  bool idx = false;  // else CSV, separated by commas
  bool header = false;
  std::string bytes;
};

/// An NPY file: images of bytes as IDX; all other numbers as CSV, of which each reads back as the
/// same float of 32 bits, and NaN as missing. `bytes` may be gzip.
Result<RowText> rows_of_npy(std::string_view bytes);

/// JSON lines: CSV with the members as columns; members that a line lacks are empty fields.
Result<RowText> rows_of_json_lines(std::string_view bytes);

}  // namespace trainyard::cli
