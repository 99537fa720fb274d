// src/data/table/csv_cell.h: classifies a CSV field as number, text or missing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace trainyard {

struct Cell {
  /// kNotFinite: written as a number, but infinite, NaN, or too large for 32 bits.
  enum class Kind : uint8_t { kMissing, kNumber, kNotFinite, kText } kind = Kind::kMissing;
  double value = 0;
  bool digits = false;  // a whole number beyond kExactMax that is written without a point

  bool is_number() const { return kind == Kind::kNumber; }
  bool is_whole() const;  // a whole number; beyond kExactMax only if it is written as one
  bool is_byte() const;   // a whole number from 0 to 255
};

/// Whole numbers below this one, 2^53, are exact in a double.
inline constexpr double kExactMax = 9007199254740992.0;

/// The texts that pandas.read_csv() reads as missing numbers by default
/// (https://pandas.pydata.org/docs/reference/api/pandas.read_csv.html, na_values), the same in
/// capitals, and the question mark of many older tables.
std::span<const std::string_view> missing_numbers();

/// How the numbers of a file are written.
struct NumberStyle {
  char decimal = '.';          // the decimal mark
  std::string thousands = {};  // the mark between groups of three digits; empty: there is none
};

/// Classifies fields. Numbers have the marks of a NumberStyle, whatever the locale. A sign (also
/// the minus sign U+2212) and an exponent are accepted; hexadecimal numbers and units are not
/// (number_spelling.h reads units).
class CellReader {
 public:
  /// Reads no text as missing.
  CellReader() = default;
  /// `missing` are the texts that mean a missing value in every column, besides the empty one. If
  /// there are none, missing_numbers() are missing where a number belongs.
  explicit CellReader(const std::vector<std::string>& missing, NumberStyle style = {});
  CellReader(const CellReader&) = delete;
  CellReader& operator=(const CellReader&) = delete;

  /// Reads a cell that should be a number.
  Cell read(std::string_view text) const;
  /// Returns whether the text is a missing number or date.
  bool is_missing(std::string_view text) const {
    if (text.empty()) return empty_is_missing_;
    return text.size() <= longest_[static_cast<unsigned char>(text.front())] &&
           missing_.contains(text);
  }
  /// Returns whether the text is a missing category or a missing text.
  bool is_missing_text(std::string_view text) const {
    return text.empty() ? empty_is_missing_ : named_ && is_missing(text);
  }
  /// From now on, the target's values are texts.
  void read_target_as_text() { target_is_text_ = true; }
  /// Returns whether a row with this target has none.
  bool is_missing_target(std::string_view text) const {
    return target_is_text_ ? is_missing_text(text) : is_missing(text);
  }
  bool target_is_text() const { return target_is_text_; }
  const NumberStyle& style() const { return style_; }
  /// From now on, numbers with a decimal point and without marks between groups are read too, which
  /// programs write whatever the style of the training file: before the style is tried, or only if
  /// a text has another style.
  void accept_plain_numbers(bool before_style) {
    also_plain_ = true;
    plain_first_ = before_style;
  }

 private:
  Cell read_number(std::string_view text) const;
  Cell read_plain(std::string_view text) const;

  std::unordered_set<std::string_view> missing_;  // views of owned_
  std::vector<std::string> owned_;
  // Length of the longest missing marker by first byte, which rules most fields out quickly.
  std::array<size_t, 256> longest_{};
  std::vector<double> missing_values_;  // markers that are numbers, such as -999
  NumberStyle style_;
  bool plain_ = true;  // the style is that of a NumberStyle()
  bool also_plain_ = false, plain_first_ = false;
  bool empty_is_missing_ = false;
  bool named_ = false;  // the user has named the texts that are missing
  bool target_is_text_ = false;
};

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns the decimal text of a whole number: "7" for 7.0.
std::string whole_number_text(double value);

/// Returns the name of the category or class that a whole number means: "7" for "7.0" and "7e0".
/// Leading zeros are kept, since "007" may be another code than "7".
std::string whole_number_name(const Cell& cell, std::string_view text);

}  // namespace trainyard
