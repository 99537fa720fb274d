// src/data/table/table_fill.h: the second pass over a table, which fills the typed arrays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/data/table/csv_columns.h"
#include "src/data/table/row_filler.h"

namespace trainyard {

/// A file of a dataset.
struct TableFile {
  const std::filesystem::path& path;
  std::string role;               // "data", "test"
  CsvScan scan = {};              // result of the first pass
  RowFiller::Layout layout = {};  // the columns' roles in the second pass
};

/// Fills `out` and, if it is learning, the codebook; the order of its codes is then unspecified.
/// Returns the number of missing values by column. Refuses bad cells, of which one error lists the
/// first 16, and a file that changed after the first pass.
Result<std::vector<int64_t>> fill_rows(const CsvOptions& options, const CellReader& cells,
                                       const TableFile& file, const TableThreads& threads,
                                       Codebook& codebook, TypedRows& out);

}  // namespace trainyard
