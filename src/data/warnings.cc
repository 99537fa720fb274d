#include "src/data/warnings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/row_copies.h"
#include "src/data/table/column_facts.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/target_leak.h"
#include "src/data/text/word_count.h"
#include "src/data/unspaced_words.h"

namespace trainyard {
namespace {

constexpr size_t kColumnsListedMax = 16;
constexpr size_t kColumnsEachMax = 3;  // more columns with the same trap share one warning

ColumnFacts facts_of_texts(const ColumnSchema& column, int64_t rows) {
  ColumnFacts facts;
  facts.kind = ColumnFacts::Kind::kCategorical;
  facts.name = column.name;
  facts.rows = rows;
  facts.missing = column.missing_count;
  facts.distinct = std::ssize(column.categories);
  if (column.categories.empty()) return facts;
  facts.example = column.categories.front();
  DateOrders orders = kAllDateOrders;
  for (const std::string& text : column.categories) {
    orders = static_cast<DateOrders>(orders & possible_orders(text));
    if (orders == 0) break;
  }
  facts.dates = orders != 0;
  for (const std::string& text : column.categories) facts.words_mean += count_words(text);
  facts.words_mean /= static_cast<double>(column.categories.size());
  return facts;
}

/// Facts about a column of numbers, where NaN is a missing value.
struct NumberColumn {
  bool whole = true;
  bool counts_rows = true;  // as in ColumnFacts
  float last = -1;
};

/// Scans the columns in blocks of rows, which stay in the cache while one column after another is
/// read. A column is not read further after a number with a fraction.
std::vector<NumberColumn> scan_numbers(std::span<const float> values,
                                       const std::vector<double>& offsets) {
  const size_t columns = offsets.size();
  constexpr size_t kScanRows = 1024;
  std::vector<NumberColumn> scanned(columns);
  if (columns == 0) return scanned;
  std::vector<size_t> left(columns);
  std::iota(left.begin(), left.end(), size_t{0});
  const size_t rows = values.size() / columns;
  for (size_t first = 0; first < rows && !left.empty(); first += kScanRows) {
    const size_t end = std::min(rows, first + kScanRows);
    std::erase_if(left, [&](size_t c) {
      NumberColumn& column = scanned[c];
      for (size_t row = first; row < end; ++row) {
        const float x = values[row * columns + c];
        const double number = static_cast<double>(x) + offsets[c];
        const bool counts = row == 0 ? number == 0 || number == 1 : x == column.last + 1;
        column.counts_rows = column.counts_rows && counts;
        if (std::isnan(x)) continue;
        if (x != std::floor(x)) {
          column.whole = false;
          return true;
        }
        column.last = x;
      }
      return false;
    });
  }
  return scanned;
}

int64_t count_distinct(std::span<const float> values, size_t columns, size_t c) {
  std::vector<float> column;
  column.reserve(values.size() / columns);
  for (size_t i = c; i < values.size(); i += columns) {
    if (!std::isnan(values[i])) column.push_back(values[i]);
  }
  std::ranges::sort(column);
  return std::unique(column.begin(), column.end()) - column.begin();
}

/// Returns a number for messages: all digits of a whole one, since large ones may differ in the
/// last.
std::string example_text(double value) {
  const bool whole = std::abs(value) < kExactMax && value == std::floor(value);
  return whole ? whole_number_text(value) : short_number(value);
}

/// Returns the facts about numeric column `c`.
ColumnFacts facts_of_numbers(const ColumnSchema& column, const DatasetStatistics& s,
                             const NumberColumn& scanned, std::span<const float> values, size_t c,
                             int64_t rows) {
  ColumnFacts facts;
  facts.name = column.name;
  facts.rows = rows;
  facts.missing = column.missing_count;
  if (!s.numeric[c]) return facts;
  facts.whole = scanned.whole && column.offset == std::floor(column.offset);
  facts.counts_rows = scanned.counts_rows;
  facts.example = example_text(s.numeric[c]->min);
  if (s.numeric[c]->max == s.numeric[c]->min) {
    facts.distinct = 1;
  } else if (may_identify_rows(facts)) {
    facts.distinct = count_distinct(values, s.numeric.size(), c);
  }
  return facts;
}

/// Adds the warnings for columns with the same trap: one for each of a few columns, or a common one
/// for more.
void add_trapped(ColumnTrap trap, const std::vector<ColumnFacts>& columns, std::string_view options,
                 std::vector<DataWarning>& warnings) {
  if (columns.size() <= kColumnsEachMax) {
    for (const ColumnFacts& c : columns) {
      warnings.push_back(
          {std::string(key_of(trap)), {c.name}, count_of(trap, c), describe(trap, c, options)});
    }
    return;
  }
  DataWarning warning{std::string(key_of(trap)), {}, std::ssize(columns), ""};
  for (const ColumnFacts& c : columns) {
    if (warning.columns.size() == kColumnsListedMax) break;
    warning.columns.push_back(c.name);
  }
  warning.message = std::to_string(columns.size()) +
                    " columns are like this one: " + describe(trap, columns.front(), options) +
                    " The others: ";
  for (size_t i = 1; i < warning.columns.size(); ++i) {
    warning.message += (i > 1 ? ", " : "") + quoted_value(warning.columns[i]);
  }
  if (columns.size() > warning.columns.size()) warning.message += ", ...";
  warnings.push_back(std::move(warning));
}

void add_columns(const DatasetSchema& schema, const DatasetStatistics& s, const TypedRows& train,
                 std::string_view options, std::vector<DataWarning>& warnings) {
  std::map<ColumnTrap, std::vector<ColumnFacts>> trapped;
  for (ColumnFacts& facts : find_column_facts(schema, s, train)) {
    if (const auto trap = find_column_trap(facts)) trapped[*trap].push_back(std::move(facts));
  }
  for (const auto& [trap, columns] : trapped) add_trapped(trap, columns, options, warnings);
}

void add_leaks(const DatasetSchema& schema, const DatasetStatistics& s, const TypedRows& train,
               std::string_view options, std::vector<DataWarning>& warnings) {
  for (const TargetLeak& leak : find_target_leaks(schema, s, train.view())) {
    // An identifier determines its row's class, but already has a warning.
    const bool reported = std::ranges::any_of(warnings, [&](const DataWarning& w) {
      return std::ranges::find(w.columns, leak.column) != w.columns.end();
    });
    if (reported) continue;
    warnings.push_back(
        {"TARGET_LEAK",
         {leak.column},
         leak.rows,
         "column " + quoted_value(leak.column) + " " + leak.finding +
             ". If it becomes known only with the target, such a model is useless in practice. " +
             leave_out(options)});
  }
}

void add_test_copies(const DatasetSchema& schema, const TypedRows& train, const TypedRows& test,
                     std::vector<DataWarning>& warnings) {
  std::vector<int64_t> train_rows(static_cast<size_t>(train.rows));
  std::vector<int64_t> test_rows(static_cast<size_t>(test.rows));
  std::iota(train_rows.begin(), train_rows.end(), int64_t{0});
  std::iota(test_rows.begin(), test_rows.end(), int64_t{0});
  const RowCopies copies = count_copies(schema, train.view(), train_rows, test.view(), test_rows);
  if (!copies.matter()) return;
  warnings.push_back({"TEST_ROWS_IN_TRAINING_SET",
                      {},
                      copies.copies,
                      std::to_string(copies.copies) + " of " + std::to_string(copies.rows) +
                          " test rows equal a training row, target included: metrics of the test "
                          "set are too optimistic. If they are copies, leave them out of "
                          "one of the files."});
}

}  // namespace

std::optional<DataWarning> find_rare_classes(const DatasetSchema& schema,
                                             std::span<const int64_t> class_rows) {
  constexpr size_t kListedMax = 5;
  std::vector<size_t> rare;
  if (schema.train_rows < kRowsToJudge) return std::nullopt;
  for (size_t k = 0; k < class_rows.size(); ++k) {
    if (class_rows[k] < kClassRowsMin) rare.push_back(k);
  }
  if (rare.empty()) return std::nullopt;
  std::ranges::stable_sort(rare, {}, [&](size_t k) { return class_rows[k]; });
  std::string listed;
  for (size_t i = 0; i < std::min(rare.size(), kListedMax); ++i) {
    listed += (i > 0 ? ", " : "") + quoted_value(schema.target.classes[rare[i]]) + " has " +
              std::to_string(class_rows[rare[i]]);
  }
  if (rare.size() > kListedMax) listed += ", ...";
  return DataWarning{kRareClasses,
                     {},
                     std::ssize(rare),
                     std::to_string(rare.size()) + " of " + std::to_string(class_rows.size()) +
                         " classes occur in fewer than " + std::to_string(kClassRowsMin) +
                         " training rows: " + listed +
                         ". A model can hardly learn them. Collect more rows of them, merge them, "
                         "or remove them from the files."};
}

std::vector<ColumnFacts> find_column_facts(const DatasetSchema& schema, const DatasetStatistics& s,
                                           const TypedRows& train) {
  const std::vector<NumberColumn> scanned = scan_numbers(train.numeric, schema.numeric_offsets());
  std::vector<ColumnFacts> facts;
  size_t number = 0;
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind == ColumnSchema::Kind::kText) continue;
    const bool texts = column.kind == ColumnSchema::Kind::kCategorical;
    const size_t c = texts ? 0 : number++;
    if (!column.date.empty()) continue;  // parts of dates often rise with the rows
    if (texts) {
      facts.push_back(facts_of_texts(column, train.rows));
      continue;
    }
    facts.push_back(facts_of_numbers(column, s, scanned[c], train.numeric, c, train.rows));
  }
  return facts;
}

std::vector<DataWarning> find_warnings(const DatasetSchema& schema, const DatasetStatistics& s,
                                       const TypedRows& train, const TypedRows& test,
                                       std::string_view options) {
  std::vector<DataWarning> warnings;
  if (schema.documents) return warnings;  // their reader has found them
  if (schema.kind == DatasetSchema::Kind::kTabular) {
    add_columns(schema, s, train, options, warnings);
    add_leaks(schema, s, train, options, warnings);
  }
  if (const auto rare = find_rare_classes(schema, s.classes)) warnings.push_back(*rare);
  const bool streamed = schema.kind == DatasetSchema::Kind::kImage && train.image_u8.empty() &&
                        train.image_f32.empty();
  if (test.rows > 0 && !schema.stream() && !streamed) {
    add_test_copies(schema, train, test, warnings);
  }
  if (schema.kind == DatasetSchema::Kind::kText) {
    if (auto unspaced = find_unspaced_words(schema.text, train)) {
      warnings.push_back(*std::move(unspaced));
    }
  }
  return warnings;
}

}  // namespace trainyard
