// src/data/table/column_facts.h: facts about a feature column, and the trap that follows from them:
// why training accepts the column although it rarely helps. Pure functions: the caller gathers the
// facts, from all rows or from a sample of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

struct ColumnFacts {
  /// How training reads the column: as numbers, or as a category for each different text.
  enum class Kind : uint8_t { kNumeric, kCategorical } kind = Kind::kNumeric;
  std::string name;
  int64_t rows = 0;
  int64_t missing = 0;
  // The number of different values; nullopt if they were not counted.
  std::optional<int64_t> distinct = {};
  std::string example = {};  // one of the values, for messages; may be empty
  bool whole = false;        // numbers: all of them are whole
  bool counts_rows = false;  // numbers: 0 or 1 comes first, and each other is one above the last
  bool dates = false;        // texts: all are dates or times as date.h reads them
  double words_mean = 0;     // texts: mean number of words per value

  int64_t present() const { return rows - missing; }
};

enum class ColumnTrap : uint8_t {
  kEmpty,           // no value at all
  kConstant,        // the same value in all rows
  kDates,           // dates read as categories
  kFreeText,        // sentences read as categories
  kIdentifier,      // only identifies or numbers the rows
  kManyCategories,  // most categories occur only once
};

/// The least number of rows for reporting a column as an identifier or for too many categories.
inline constexpr int64_t kRowsToJudge = 30;

/// Returns the worst of the column's traps, if it has one.
std::optional<ColumnTrap> find_column_trap(const ColumnFacts& column);

/// Returns the trap's stable key for programs: "CONSTANT_COLUMN".
std::string_view key_of(ColumnTrap trap);

/// Returns the number of rows, or of different values, that the trap concerns.
int64_t count_of(ColumnTrap trap, const ColumnFacts& column);

/// Returns whether a column of whole numbers identifies the rows if its numbers differ, so that
/// `distinct` must be counted to decide.
bool may_identify_rows(const ColumnFacts& column);

/// Returns "Leave it out: list it in dataset.csv.ignore." `options` as for describe().
std::string leave_out(std::string_view options);

/// Returns two sentences: the finding and advice. `options` is the field with the format's options,
/// "csv" or "jsonl", whose `ignore`, `date` and `text` the advice names; empty for formats without
/// them.
std::string describe(ColumnTrap trap, const ColumnFacts& column, std::string_view options);

}  // namespace trainyard
