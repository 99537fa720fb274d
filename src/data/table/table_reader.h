// src/data/table/table_reader.h: reads a table's rows one after another, from CSV or JSON lines.
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
  /// Returns the columns' names. For JSON lines, names are appended when rows have new members.
  virtual const std::vector<std::string>& names() const = 0;
  /// Reads the next row; returns false at the end. The views are valid until the following call.
  /// Refusal: DATASET_INVALID with the line, after which nothing can be read.
  virtual Result<bool> next(std::vector<std::string_view>& fields) = 0;
  /// Returns the line, from 1, on which the last row began.
  virtual int64_t line() const = 0;
  /// Returns the offset in the source at which the first row begins. Call it only before any row is
  /// read.
  virtual int64_t rows_begin() const = 0;
  /// Returns whether RecordBlocks can cut the rows: false if CR alone ends them.
  virtual bool has_blocks() const { return true; }
};

/// Opens a table. Borrows `source`. Reads the header of a CSV file, and refuses an empty one. If
/// the first rows have one field more than the header, this is a nameless column: the last one if
/// it is empty, as separators at the ends of lines make it, else the first one, with the names of
/// rows. `known` are columns that a table of JSON lines has even if no row has these members.
Result<std::unique_ptr<TableReader>> open_table(const CsvOptions& options, ByteSource& source,
                                                const std::string& what,
                                                const std::vector<std::string>& known = {});

}  // namespace trainyard
