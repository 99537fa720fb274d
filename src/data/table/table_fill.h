// src/data/table/table_fill.h: the second pass over a table: its rows into typed arrays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/data/table/csv_columns.h"
#include "src/data/table/row_filler.h"

namespace trainyard {

/// One file of a dataset: after the first pass its columns and rows, then what they become.
struct TableFile {
  const std::filesystem::path& path;
  std::string role;  // "data", "test"
  CsvScan scan = {};
  RowFiller::Layout layout = {};
};

/// Fills `out`, and the codebook if it learns: codes are then those of the names in any order.
/// Returns how many values each column lacks. Refuses bad cells, the first 16 at once, and a file
/// that is no longer what the first pass read.
Result<std::vector<int64_t>> fill_rows(const CsvOptions& options, const CellReader& cells,
                                       const TableFile& file, const TableThreads& threads,
                                       Codebook& codebook, TypedRows& out);

}  // namespace trainyard
