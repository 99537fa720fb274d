#include "src/data/table/csv_cell.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace trainyard {
namespace {

constexpr double kExactMax = 9007199254740992.0;  // 2^53

}  // namespace

bool Cell::is_whole() const {
  return is_number() && std::abs(value) <= kExactMax && value == std::floor(value);
}
bool Cell::is_byte() const {
  return is_number() && value >= 0 && value <= 255 && value == std::floor(value);
}

CellReader::CellReader(const std::vector<std::string>& missing) : owned_(missing) {
  for (const std::string& marker : owned_) {
    missing_.insert(marker);
    if (marker.empty()) {
      empty_is_missing_ = true;
    } else {
      first_byte_[static_cast<unsigned char>(marker.front())] = true;
    }
  }
}

bool CellReader::is_missing(std::string_view text) const {
  if (text.empty()) return empty_is_missing_;
  return first_byte_[static_cast<unsigned char>(text.front())] && missing_.contains(text);
}

Cell CellReader::read(std::string_view text) const {
  if (is_missing(text)) return {Cell::Kind::kMissing, 0};
  std::string_view digits = text;
  if (digits.starts_with('+') && !digits.starts_with("+-") && !digits.starts_with("++")) {
    digits.remove_prefix(1);  // from_chars takes no plus sign
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error == std::errc::invalid_argument ||
      stop != digits.data() + digits.size()) {
    return {Cell::Kind::kText, 0};
  }
  if (error == std::errc::result_out_of_range) {  // too large, or too close to 0
    const bool tiny = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
    return {tiny ? Cell::Kind::kNumber : Cell::Kind::kNotFinite, 0};
  }
  // Values are stored in 32 bits: what would become infinite there is refused here.
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return {Cell::Kind::kNotFinite, value};
  }
  return {Cell::Kind::kNumber, value};
}

std::string whole_number_text(double value) { return std::to_string(static_cast<int64_t>(value)); }

}  // namespace trainyard
