// src/data/table/csv_cell.h: classifies a CSV field as number, text or missing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace trainyard {

struct Cell {
  /// kNotFinite: written as a number, but infinite, NaN, or too large for 32 bits.
  enum class Kind : uint8_t { kMissing, kNumber, kNotFinite, kText } kind = Kind::kMissing;
  double value = 0;

  bool is_number() const { return kind == Kind::kNumber; }
  bool is_whole() const;  // a whole number of at most 2^53
  bool is_byte() const;   // a whole number from 0 to 255
};

/// Classifies fields. Numbers are decimal with a point, independent of the locale. A sign and an
/// exponent are accepted; thousands separators, hexadecimal numbers and units are not.
class CellReader {
 public:
  explicit CellReader(const std::vector<std::string>& missing);
  Cell read(std::string_view text) const;
  bool is_missing(std::string_view text) const {
    if (text.empty()) return empty_is_missing_;
    return text.size() <= longest_[static_cast<unsigned char>(text.front())] &&
           missing_.contains(text);
  }

 private:
  std::unordered_set<std::string_view> missing_;  // views of owned_
  std::vector<std::string> owned_;
  // Length of the longest missing marker by first byte, which rules most fields out quickly.
  std::array<size_t, 256> longest_{};
  bool empty_is_missing_ = false;
};

/// Returns the decimal text of a whole number, as in class names: "7" for 7.0.
std::string whole_number_text(double value);

}  // namespace trainyard
