#include "client/init/column_fate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "client/init/draft_parts.h"
#include "client/init/target_words.h"
#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/table/csv_schema.h"

namespace trainyard::init {
namespace {

using Fate = Decision::Fate;

constexpr size_t kMixedCategoriesMax = 50;  // for columns that mix numbers and text
constexpr int64_t kPixelsMin = 64;

std::string differ_text(const ColumnFacts& c) {
  return grouped(c.distinct.value_or(0)) + " of " + grouped(c.present()) + " values differ" +
         (c.example.empty() ? "" : ", such as " + in_quotes(c.example));
}

Decision decide_dates(const ColumnProfile& c) {
  if (only_order(c.date_orders)) return {Fate::kDate, ""};
  return {Fate::kLeftOut, "dates such as " + in_quotes(c.example) +
                              ", whose day may be first or second; to use the column, list it in "
                              "`date` and set `date_order` to day_first or month_first"};
}

/// Leaves out a column with values that an ingest refuses as categories.
Decision decide_category(const ColumnProfile& c, Fate fate) {
  if (std::ssize(c.texts) > kCategoriesMax) {
    return {Fate::kLeftOut, "more than " + grouped(kCategoriesMax) + " different texts"};
  }
  if (!c.no_category.empty()) {
    return {Fate::kLeftOut, "has " + c.no_category + "; shorten or remove it to use the column"};
  }
  return {fate, ""};
}

Decision decide_texts(const ColumnProfile& c, int64_t rows) {
  const std::string example = in_quotes(c.example);
  if (c.has_other_dates()) {
    return {Fate::kLeftOut, "dates in an unsupported format, such as " + example +
                                "; write them as 2026-01-31 to use the column"};
  }
  if (c.has_other_numbers()) {
    return {Fate::kLeftOut, "numbers with units or separators, such as " + example +
                                "; write plain numbers to use the column"};
  }
  const ColumnFacts facts = c.facts(rows);
  const std::optional<ColumnTrap> trap = find_column_trap(facts);
  if (trap == ColumnTrap::kDates) return decide_dates(c);
  if (trap == ColumnTrap::kFreeText || c.words_mean() >= kLongTextWords) {
    return {Fate::kText, trap_text(ColumnTrap::kFreeText, facts)};
  }
  if (trap) return {Fate::kLeftOut, trap_text(*trap, facts)};
  return decide_category(c, Fate::kCategory);
}

/// Returns whether the name is typical of a pixel's column: "pixel12", "pixel_0_7", "1x1", "12"; or
/// "c5", as in files without a header.
bool is_pixel_name(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kNames = {"",      "p",     "px",  "pix",
                                                             "pixel", "image", "img", "c"};
  const size_t digits = std::min(name.find_first_of("0123456789"), name.size());
  std::string_view word = name.substr(0, digits);
  if (word.ends_with('_')) word.remove_suffix(1);
  return digits < name.size() && std::ranges::find(kNames, lower(word)) != kNames.end() &&
         name.find_first_not_of("0123456789x_", digits) == name.npos;
}

}  // namespace

std::string trap_text(ColumnTrap trap, const ColumnFacts& c) {
  switch (trap) {
    case ColumnTrap::kEmpty:
      return "no value in any row";
    case ColumnTrap::kConstant:
      return "the same value in all rows" + (c.example.empty() ? "" : ", " + in_quotes(c.example));
    case ColumnTrap::kIdentifier:
      return (c.kind == ColumnFacts::Kind::kNumeric ? "looks like an ID or a count of the rows: "
                                                    : "looks like an ID: ") +
             differ_text(c);
    case ColumnTrap::kManyCategories:
      return "almost no category occurs twice: " + differ_text(c);
    case ColumnTrap::kFreeText:
      return "free text: " + differ_text(c);
    case ColumnTrap::kDates:
      return "dates";
  }
  return "";
}

Decision decide(const ColumnProfile& c, int64_t rows) {
  if (c.present() == 0) return {Fate::kLeftOut, "no value in any row"};
  if (!c.numeric()) return decide_texts(c, rows);
  if (c.identifies_rows()) {
    return {Fate::kLeftOut, c.may_identify_rows
                                ? "looks like an ID: nearly all of its numbers differ"
                                : "counts the rows: each number is one above the one before it"};
  }
  if (c.counts.texts > 0) {
    if (c.texts.size() <= kMixedCategoriesMax) return decide_category(c, Fate::kMixed);
    return {Fate::kLeftOut, "numbers, and text such as " + in_quotes(c.example) +
                                "; leave these cells empty to use the column"};
  }
  if (c.counts.not_finite > 0) {
    return {Fate::kLeftOut, "infinite values; leave these cells empty to use the column"};
  }
  return {Fate::kNumber, ""};
}

bool predicts_classes(const ColumnProfile& c) {
  // A count of more than ten different whole numbers loses their order as classes.
  constexpr size_t kWholeClassesMax = 10;
  if (c.spelled) return false;
  if (infer_target("", c.counts, c.values.size()) != TargetSchema::Kind::kClass) return false;
  const bool named =
      find_target_word(c.name) == TargetWord::kTarget || letters_of_name(c.name) == "class";
  if (c.counts.texts > 0) return true;
  // Numbers of which each row has another one are measured.
  return (named || c.values.size() <= kWholeClassesMax) && std::ssize(c.values) < c.present();
}

bool has_only_single_rows(const ColumnProfile& target) {
  return target.counts.texts > 0 && std::ssize(target.texts) == target.present() &&
         count_marked_classes(target) <= 1;
}

int64_t count_marked_classes(const ColumnProfile& target) {
  if (!predicts_classes(target) || target.counts.form() != CategoryForm::kTexts) return 0;
  int64_t count = 0;
  for (const auto& [mark, cells] : target.marks) count += cells;
  return count;
}

int64_t pixel_side(const TableProfile& table, size_t target) {
  const auto pixels = std::ssize(table.columns) - 1;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  if (pixels < kPixelsMin || side * side != pixels) return 0;
  // a column has more than a few different values, so the columns are pixels rather than switches
  bool shades = false;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& c = table.columns[i];
    if (i == target) continue;
    if (c.counts.numbers != table.rows || !c.counts.bytes || !is_pixel_name(c.name)) return 0;
    shades |= c.values.size() > 10;
  }
  return shades ? side : 0;
}

}  // namespace trainyard::init
