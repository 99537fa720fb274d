#include "client/init/table_notes.h"

#include "client/init/draft_parts.h"
#include "src/base/grouped.h"
#include "src/data/limits.h"
#include "src/data/table/column_names.h"

namespace trainyard::init {
namespace {

constexpr int64_t kGroupsMin = 5;        // fewer groups are too few to hold some out
constexpr int64_t kRowsPerGroupMin = 2;  // on average
constexpr size_t kTimesMin = 10;         // fewer different times are categories

/// Returns whether the column says to which subject a row belongs, and subjects have several rows.
bool names_groups(const ColumnProfile& c, int64_t rows) {
  if (!is_subject_name(c.name) && !is_identifier_name(c.name)) return false;
  const auto groups = std::ssize(c.texts);
  if (groups < kGroupsMin || groups > kCategoriesMax || c.counts.missing > 0) return false;
  return (!c.numeric() || c.counts.whole) && groups * kRowsPerGroupMin <= rows;
}

bool orders_rows(const ColumnProfile& c) {
  if (c.counts.missing > 0 || c.texts.size() < kTimesMin || !c.order.never_falls) return false;
  const bool all_dates = c.dates > 0 && c.dates == c.present();
  return all_dates || (c.counts.numbers == c.present() && is_time_name(c.name));
}

}  // namespace

std::optional<std::string> note_on_groups(const TableProfile& table, size_t target) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& c = table.columns[i];
    if (i == target || !names_groups(c, table.rows)) continue;
    return "The " + count_of(table.rows, "row") + " have " + grouped(std::ssize(c.texts)) +
           " different values of " + in_quotes(c.name) +
           ". If rows with the same value belong together, a random validation split tests the "
           "model on subjects that it has seen, and the result is too good: `split: {group: " +
           yaml_text(c.name) + "}` under `recipe` holds out whole subjects.";
  }
  return std::nullopt;
}

std::optional<std::string> note_on_time(const TableProfile& table, size_t target) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& c = table.columns[i];
    if (i == target || !orders_rows(c)) continue;
    return "The rows are in order of " + in_quotes(c.name) +
           ". If the model is to predict later rows from earlier ones, a random validation split "
           "is too easy: `split: {time: " +
           yaml_text(c.name) + "}` under `recipe` holds out the last ones.";
  }
  return std::nullopt;
}

}  // namespace trainyard::init
