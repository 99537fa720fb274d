// src/data/table/csv_columns.h: the columns of a table: their names, and what is known of each
// after a first pass over the rows.
//
// Ingest reads a file twice. The first pass counts what each column holds and keeps no cell; the
// second fills arrays of known type and size. So memory is bounded by the typed form, and no guess
// about a column can be disproved by later rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/problems.h"
#include "src/data/table/csv_cell.h"

namespace trainyard {

struct ColumnCounts {
  int64_t missing = 0;
  int64_t numbers = 0;
  int64_t not_finite = 0;
  int64_t texts = 0;
  bool whole = true;   // of the numbers
  bool bytes = true;   // whole and 0..255
  bool times = false;  // of a column of dates: one of them has a time
};

struct CsvScan {
  std::vector<std::string> names;
  std::vector<ColumnCounts> counts;     // by column
  std::set<std::string> target_values;  // the first kTargetValuesMax + 1 different ones
  int64_t rows = 0;
  int64_t skipped_rows = 0;  // without a target, which the options leave out; not among `rows`
  // Where threads have read it: where the rows begin in the file's bytes, and how many rows there
  // are before each of the blocks. Else empty.
  int64_t rows_begin = 0;
  std::vector<int64_t> block_rows;
};

/// More different whole numbers than this are a quantity, not classes.
inline constexpr size_t kTargetValuesMax = 20;

void count_cell(const Cell& cell, ColumnCounts& counts);
/// What a target's cell counts as: "1.0" is 1.
std::string target_value(const Cell& cell, std::string_view text);
/// Adds the target's value to `values`, which needs at most one more than kTargetValuesMax.
void note_target_value(const Cell& cell, std::string_view text, std::set<std::string>& values);

/// Names from the header's fields; an empty one is named by its position, "c3". Refuses names that
/// are repeated, too long or not UTF-8.
Result<std::vector<std::string>> header_names(std::span<const std::string_view> fields,
                                              const std::string& what);
/// "c0", "c1", ...
std::vector<std::string> numbered_names(size_t count);

/// True for rows that the options leave out, by their cell of the target.
bool is_skipped(const CsvOptions& options, const CellReader& cells,
                std::span<const std::string_view> fields, size_t target);

/// The first pass. `what` is the source's role; `known` as of open_table(). Refuses files without
/// rows (or without one that has a target), ragged rows and broken quoting, the first 16 at once.
Result<CsvScan> scan_csv(const CsvOptions& options, const CellReader& cells,
                         const std::filesystem::path& path, const std::string& what,
                         const TableThreads& threads, const std::vector<std::string>& known = {});

}  // namespace trainyard
