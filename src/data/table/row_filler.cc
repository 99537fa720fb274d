#include "src/data/table/row_filler.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/table/date.h"
#include "src/data/table/number_spelling.h"

namespace trainyard {
namespace {

constexpr const char* kTargetMissing =
    "the target is missing, but every row needs one; `missing_target: skip` leaves such rows out";

/// Returns which dates are read in a column, for messages.
std::string expected_dates(DateOrder order) {
  switch (order) {
    case DateOrder::kYearFirst:
      return ", expected the year first, such as 2026-01-31, 2026-01-31T12:30:05 or "
             "2026-01-31T12:30:05+01:00";
    case DateOrder::kDayFirst:
      return " with the day first, such as 31.01.2026 or 31/1/26 12:30";
    case DateOrder::kMonthFirst:
      return " with the month first, such as 1/31/2026 or 1/31/26 12:30";
    case DateOrder::kTime:
      return ", expected a time such as 12:30:05, as in the rest of the column";
  }
  return "";
}

template <typename T>
T& at_row(std::vector<T>& values, int64_t row, int64_t width, int64_t index) {
  return values[static_cast<size_t>(row * width + index)];
}

}  // namespace

RowFiller::RowFiller(std::string what, Layout layout, const CellReader& cells, Codebook& codebook,
                     TypedRows& rows, Problems& problems)
    : what_(std::move(what)),
      layout_(std::move(layout)),
      cells_(cells),
      codebook_(codebook),
      rows_(rows),
      problems_(problems),
      missing_(layout_.roles.size(), 0),
      overflowed_(layout_.roles.size(), false) {
  const auto is_target = [](const ColumnRole& role) {
    return role.kind == ColumnRole::Kind::kTargetClass ||
           role.kind == ColumnRole::Kind::kTargetNumeric;
  };
  const auto target = std::ranges::find_if(layout_.roles, is_target);
  target_ = static_cast<size_t>(target - layout_.roles.begin());
}

void RowFiller::reserve(int64_t rows) {
  const auto n = static_cast<size_t>(rows);
  rows_.numeric.reserve(n * static_cast<size_t>(layout_.numeric));
  rows_.category.reserve(n * static_cast<size_t>(layout_.categorical));
  rows_.tokens.reserve(n * static_cast<size_t>(layout_.text_length));
  const size_t pixels = n * static_cast<size_t>(layout_.pixels);
  if (layout_.pixel_dtype == DType::kU8) {
    rows_.image_u8.reserve(pixels);
  } else {
    rows_.image_f32.reserve(pixels);
  }
  for (const ColumnRole& role : layout_.roles) {
    if (role.kind == ColumnRole::Kind::kTargetClass) rows_.target_class.reserve(n);
    if (role.kind == ColumnRole::Kind::kTargetNumeric) rows_.target_numeric.reserve(n);
  }
}

void RowFiller::add(std::span<const std::string_view> fields, int64_t line) {
  TRAINYARD_CHECK(fields.size() == layout_.roles.size(), "a ragged row reached the filler");
  line_ = line;
  const auto grow = [](auto& values, int64_t count, auto value) {
    values.resize(values.size() + static_cast<size_t>(count), value);
  };
  grow(rows_.numeric, layout_.numeric, std::numeric_limits<float>::quiet_NaN());
  grow(rows_.category, layout_.categorical, int32_t{-1});
  if (layout_.pixel_dtype == DType::kU8) {
    grow(rows_.image_u8, layout_.pixels, uint8_t{0});
  } else {
    grow(rows_.image_f32, layout_.pixels, 0.0f);
  }
  for (size_t column = 0; column < fields.size(); ++column) {
    switch (layout_.roles[column].kind) {
      case ColumnRole::Kind::kIgnored:
        break;
      case ColumnRole::Kind::kNumeric:
        set_numeric(column, fields[column]);
        break;
      case ColumnRole::Kind::kDate:
        set_date(column, fields[column]);
        break;
      case ColumnRole::Kind::kCategorical:
        set_category(column, fields[column]);
        break;
      case ColumnRole::Kind::kPixel:
        set_pixel(column, fields[column]);
        break;
      case ColumnRole::Kind::kText:
        add_text(column, fields[column]);
        break;
      case ColumnRole::Kind::kTargetClass:
        set_class(column, fields[column]);
        break;
      case ColumnRole::Kind::kTargetNumeric:
        set_target(column, fields[column]);
        break;
    }
  }
  if (layout_.tokenizer != nullptr) finish_text();
  ++rows_.rows;
}

void RowFiller::add_text(size_t column, std::string_view text) {
  if (cells_.is_missing_text(text)) {
    ++missing_[column];
    return;
  }
  if (const std::optional<size_t> bad = find_invalid_utf8(text)) {
    refuse(column, "byte " + std::to_string(*bad) + " of the text (" +
                       quoted_value(text.substr(*bad, 1)) + ") is not UTF-8");
    return;
  }
  if (!text_.empty()) text_ += ' ';
  text_ += text;
}

void RowFiller::finish_text() {
  const size_t end = rows_.tokens.size() + static_cast<size_t>(layout_.text_length);
  layout_.tokenizer->encode(text_, layout_.text_length, rows_.tokens);
  rows_.tokens.resize(end, layout_.padding);
  text_.clear();
}

Cell RowFiller::read_number(size_t column, std::string_view text) const {
  const std::optional<std::string>& unit = layout_.roles[column].unit;
  if (!unit) return cells_.read(text);
  const SpelledNumber spelled = read_spelled(cells_, text);
  const bool fits = spelled.unit.empty() || spelled.unit == *unit;
  return fits ? spelled.cell : Cell{Cell::Kind::kText, 0};
}

void RowFiller::set_numeric(size_t column, std::string_view text) {
  const Cell cell = read_number(column, text);
  if (cell.kind == Cell::Kind::kMissing) {
    ++missing_[column];
  } else if (cell.is_number()) {
    at_row(rows_.numeric, rows_.rows, layout_.numeric, layout_.roles[column].index) =
        static_cast<float>(cell.value - layout_.roles[column].offset);
  } else {
    refuse_number(column, text, cell);
  }
}

void RowFiller::set_date(size_t column, std::string_view text) {
  if (cells_.is_missing(text)) {
    ++missing_[column];
    return;
  }
  const ColumnRole& role = layout_.roles[column];
  const std::optional<Date> date = parse_date(text, role.date_order);
  if (!date) {
    refuse(column, quoted_value(text) + " is not a date" + expected_dates(role.date_order));
    return;
  }
  float* first = &at_row(rows_.numeric, rows_.rows, layout_.numeric, role.index);
  write_date(*date, role.date_order, role.offset, {first, static_cast<size_t>(role.parts)});
}

bool RowFiller::is_missing_name(std::string_view text, const CategoryCodes& codes) const {
  return codes.form() == CategoryForm::kTexts ? cells_.is_missing_text(text)
                                              : cells_.is_missing(text);
}

std::string_view RowFiller::name_of(std::string_view text, const CategoryCodes& codes,
                                    std::string& buffer) const {
  if (codes.form() != CategoryForm::kWholeNumbers) return text;
  const Cell cell = cells_.read(text);
  if (!cell.is_whole()) return text;
  buffer = whole_number_name(cell, text);
  return buffer;
}

void RowFiller::set_category(size_t column, std::string_view text) {
  const int64_t index = layout_.roles[column].index;
  CategoryCodes& codes = codebook_.categories[static_cast<size_t>(index)];
  if (is_missing_name(text, codes)) {
    ++missing_[column];
    return;
  }
  std::string buffer;
  text = name_of(text, codes, buffer);
  int32_t code = codes.find(text);
  if (code < 0 && codebook_.learning) {
    code = learn(column, text, codes, kCategoriesMax, "; leave the column out with `ignore`");
  } else if (code < 0 && codebook_.notes_unseen) {
    note_unseen(column, text);
  }
  at_row(rows_.category, rows_.rows, layout_.categorical, index) = code;
}

void RowFiller::note_unseen(size_t column, std::string_view text) {
  ++rows_.unseen_count;
  if (rows_.unseen.size() == RawRows::kUnseenMax) return;
  size_t size = std::min(text.size(), RawRows::kUnseenBytesMax);
  while (size > 0 && !is_utf8(text.substr(0, size))) --size;  // never splits a character
  rows_.unseen.push_back({rows_.rows, layout_.names[column], std::string(text.substr(0, size))});
}

void RowFiller::set_pixel(size_t column, std::string_view text) {
  const Cell cell = cells_.read(text);
  const int64_t index = layout_.roles[column].index;
  if (cell.kind == Cell::Kind::kMissing) {
    refuse(column, "the value is missing, but an image needs all pixels");
  } else if (!cell.is_number()) {
    refuse_number(column, text, cell);
  } else if (layout_.pixel_dtype == DType::kF32) {
    at_row(rows_.image_f32, rows_.rows, layout_.pixels, index) = static_cast<float>(cell.value);
  } else if (cell.is_byte()) {
    at_row(rows_.image_u8, rows_.rows, layout_.pixels, index) = static_cast<uint8_t>(cell.value);
  } else {
    refuse(column, quoted_value(text) +
                       " is not a whole number from 0 to 255, as all pixels of the "
                       "training data are");
  }
}

void RowFiller::set_class(size_t column, std::string_view text) {
  std::string buffer;
  const bool missing = is_missing_name(text, codebook_.classes);
  text = name_of(text, codebook_.classes, buffer);
  int32_t code = missing ? -1 : codebook_.classes.find(text);
  if (missing) {
    refuse(column, kTargetMissing);
  } else if (code < 0 && codebook_.learning) {
    code = learn(column, text, codebook_.classes, kClassesMax,
                 " as classes; is the target numeric (target_kind)?");
  } else if (code < 0) {
    refuse(column, quoted_value(text) + " is not a class of the training rows");
  }
  rows_.target_class.push_back(code);
}

void RowFiller::set_target(size_t column, std::string_view text) {
  const Cell cell = read_number(column, text);
  if (cell.kind == Cell::Kind::kMissing) {
    refuse(column, kTargetMissing);
  } else if (!cell.is_number()) {
    refuse_number(column, text, cell);
  }
  rows_.target_numeric.push_back(static_cast<float>(cell.value - layout_.roles[column].offset));
}

int32_t RowFiller::learn(size_t column, std::string_view text, CategoryCodes& codes, int64_t max,
                         const char* remedy) {
  if (codes.count() < max) return check_name(column, text) ? codes.add(text) : -1;
  if (!overflowed_[column]) {  // reported once per column instead of once per row
    overflowed_[column] = true;
    refuse(column, "more than " + std::to_string(max) + " different values" + remedy);
  }
  return -1;
}

bool RowFiller::check_name(size_t column, std::string_view text) {
  if (text.size() > kNameBytesMax) {
    refuse(column, "a text of " + std::to_string(text.size()) +
                       " bytes is too long for a category (at most " +
                       std::to_string(kNameBytesMax) +
                       " bytes); leave the column out with `ignore`");
    return false;
  }
  if (text.empty() || !is_utf8(text)) {
    refuse(column, text.empty() ? "the value is empty" : quoted_value(text) + " is not UTF-8 text");
    return false;
  }
  return true;
}

std::string RowFiller::spelling_remedy(std::string_view text) const {
  if (read_spelled(cells_, text).cell.is_number()) {
    return "if the column has numbers with a unit or in parentheses, list it in `numbers`";
  }
  const std::string_view texts[] = {text};
  const char delimiter = cells_.style().decimal == ',' ? ';' : ',';
  if (!find_spelling(texts, delimiter)) return "";
  return "if the file's numbers are written so, set `decimal` and `thousands`";
}

void RowFiller::refuse_number(size_t column, std::string_view text, const Cell& cell) {
  if (cell.kind == Cell::Kind::kNotFinite) {
    refuse(column, quoted_value(text) + " is not a finite number of 32 bits");
    return;
  }
  if (const std::optional<std::string>& unit = layout_.roles[column].unit) {
    refuse(column, quoted_value(text) + " is not a number" +
                       (unit->empty() ? "" : ", with or without " + quoted_value(*unit)));
    return;
  }
  if (const std::string remedy = codebook_.learning ? spelling_remedy(text) : ""; !remedy.empty()) {
    refuse(column, quoted_value(text) + " is not a plain number; " + remedy);
    return;
  }
  const bool categories_possible =
      codebook_.learning && layout_.roles[column].kind == ColumnRole::Kind::kNumeric;
  refuse(column,
         quoted_value(text) + " is not a number" +
             (categories_possible
                  ? ", as most of the column is; if it holds names, list it in `categorical`; if "
                    "this text means a missing value, list the text in `missing`"
                  : ""));
}

void RowFiller::refuse(size_t column, std::string description) {
  problems_.add(place_of(what_, rows_.rows + skipped_ + 1, line_, layout_.names[column]),
                std::move(description));
}

}  // namespace trainyard
