// src/data/table/column_facts.h: what is known of one feature column, and which traps follow from
// it: columns that training accepts and that rarely help. Pure: the caller gathers the facts, from
// all rows or from a sample of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

struct ColumnFacts {
  /// How training would read the column: as numbers, or as one category for each different text.
  enum class Kind : uint8_t { kNumeric, kCategorical } kind = Kind::kNumeric;
  std::string name;
  int64_t rows = 0;
  int64_t missing = 0;
  // Different values that are present; nothing: not counted.
  std::optional<int64_t> distinct = {};
  std::string example = {};  // one of the values, for sentences; may be empty
  bool whole = false;        // numbers: all of them are whole
  bool monotonic = false;    // numbers: each is above the one before it, or each is below it
  std::optional<double> range = {};  // numbers: the largest minus the smallest
  bool dates = false;                // texts: all are dates or times as date.h reads them
  double words_mean = 0;             // texts: words of a value

  int64_t present() const { return rows - missing; }
};

enum class ColumnTrap : uint8_t {
  kEmpty,           // no value at all
  kConstant,        // one value in all rows
  kDates,           // dates read as categories
  kFreeText,        // sentences read as categories
  kIdentifier,      // names or counts the row, nothing else
  kManyCategories,  // hardly a category occurs twice
};

/// Rows that it takes to call a column an identifier or to say that it has too many categories.
inline constexpr int64_t kRowsToJudge = 30;

/// The worst of the column's traps, if it has one.
std::optional<ColumnTrap> find_column_trap(const ColumnFacts& column);

/// A stable key: "CONSTANT_COLUMN".
std::string_view key_of(ColumnTrap trap);

/// How many rows or values the trap is about.
int64_t count_of(ColumnTrap trap, const ColumnFacts& column);

/// Whether the number of different values decides: of other columns of numbers nobody need count
/// them.
bool may_count_rows(const ColumnFacts& column);

/// "Leave it out: list it in dataset.csv.ignore." `options` as for describe().
std::string leave_out(std::string_view options);

/// Two sentences: what was found, and what to do. `options` is the field of the format's options,
/// "csv" or "jsonl", whose `ignore`, `date` and `text` are named; empty for formats without them.
std::string describe(ColumnTrap trap, const ColumnFacts& column, std::string_view options);

/// Words of a text, for `words_mean`.
double count_words(std::string_view text);

/// "id", "PassengerId", "order_id", "Unnamed: 0", "uuid": names that people give to identifiers.
bool is_identifier_name(std::string_view name);

}  // namespace trainyard
