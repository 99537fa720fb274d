// src/data/table/table_reader.h: a table's rows one after another, whatever the file's format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/data/files/byte_source.h"

namespace trainyard {

class TableReader {
 public:
  virtual ~TableReader() = default;
  /// The columns' names. Those of JSON lines grow as rows add new members.
  virtual const std::vector<std::string>& names() const = 0;
  /// Reads the next row; false at the end. The views are valid until the following call. Refusal:
  /// DATASET_INVALID naming the line; nothing can be read after it.
  virtual Result<bool> next(std::vector<std::string_view>& fields) = 0;
  /// The line, from 1, on which the last row began.
  virtual int64_t line() const = 0;
  /// Where the first row begins in the bytes of the source. Not once rows have been read.
  virtual int64_t rows_begin() const = 0;
};

/// Borrows `source`. Reads a CSV file's header, and refuses an empty file. `known` are columns that
/// JSON lines are to have, whether or not a row has them.
Result<std::unique_ptr<TableReader>> open_table(const CsvOptions& options, ByteSource& source,
                                                const std::string& what,
                                                const std::vector<std::string>& known = {});

}  // namespace trainyard
