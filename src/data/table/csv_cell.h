// src/data/table/csv_cell.h: what one CSV field says: a number, text, or nothing.
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
  bool is_whole() const;  // and exact in a double
  bool is_byte() const;   // whole, 0..255
};

/// Classifies fields: decimal numbers with a point, whatever the locale; an exponent and a sign are
/// accepted, thousands separators, hexadecimal and units are not.
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
  std::unordered_set<std::string_view> missing_;  // of owned_
  std::vector<std::string> owned_;
  std::array<size_t, 256> longest_{};  // by first byte, of the missing markers: rules out most
  bool empty_is_missing_ = false;
};

/// The decimal text of a whole number: "7" for 7.0. Class names are in this form.
std::string whole_number_text(double value);

}  // namespace trainyard
