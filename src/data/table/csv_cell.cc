#include "src/data/table/csv_cell.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace trainyard {
namespace {

constexpr auto kMissingNumbers = std::to_array<std::string_view>(
    {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
     "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
     "NaN",  "None",   "n/a",      "nan",  "null",    "NAN",      "?"});

constexpr std::string_view kMinusSign = "\xe2\x88\x92";          // U+2212
constexpr std::string_view kNoBreakSpaces[] = {"\xc2\xa0",       // U+00A0
                                               "\xe2\x80\xaf"};  // U+202F, narrow

/// Powers of ten, which are exact in a double.
constexpr std::array<double, 8> kTens = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};

constexpr uint64_t kEach = 0x0101010101010101u;  // multiplies a byte into all eight bytes

template <typename T>
uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

/// Loads 1 to 8 characters into a word, the first one into the lowest byte; the rest is zero.
uint64_t load_characters(const char* p, size_t count) {
  if (count == 8) return load<uint64_t>(p);
  if (count >= 4) return load<uint32_t>(p) | load<uint32_t>(p + count - 4) << (8 * (count - 4));
  uint64_t characters = static_cast<unsigned char>(p[0]);
  for (size_t i = 1; i < count; ++i) {
    characters |= uint64_t{static_cast<unsigned char>(p[i])} << (8 * i);
  }
  return characters;
}

/// Converts eight digits in parallel, by arithmetic on the bytes of a word (SWAR). The first digit
/// is in the lowest byte of `text`. Returns false if a byte is no digit.
bool read_digits(uint64_t text, uint64_t& number) {
  constexpr uint64_t kHigh = kEach * 0xf0;
  if (((text & kHigh) | (((text + kEach * 6) & kHigh) >> 4)) != kEach * 0x33) return false;
  text -= kEach * '0';
  text = (text * 10 + (text >> 8)) & 0x00ff00ff00ff00ffu;    // numbers of two digits
  text = (text * 100 + (text >> 16)) & 0x0000ffff0000ffffu;  // numbers of four digits
  number = (text * 10000 + (text >> 32)) & 0x00000000ffffffffu;
  return true;
}

/// Reads a number such as -12 or 3.25 with at most eight characters after the sign. It is computed
/// by one division of two exact doubles, which rounds once, so the result is that of from_chars().
/// Returns false for any other text.
bool read_short_number(std::string_view text, double& value) {
  static_assert(std::endian::native == std::endian::little);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 8) return false;
  uint64_t digits = load_characters(text.data(), text.size());
  size_t count = text.size();
  size_t fraction = 0;  // number of digits after the point
  const uint64_t point = digits ^ (kEach * '.');
  // This marks the lowest zero byte (the first point) exactly; marks above it may be wrong and are
  // not used.
  if (const uint64_t found = (point - kEach) & ~point & (kEach * 0x80); found != 0) {
    const auto place = static_cast<size_t>(std::countr_zero(found)) / 8;
    fraction = count - place - 1;
    if (place == 0 || fraction == 0) return false;
    const uint64_t before = (uint64_t{1} << (8 * place)) - 1;
    digits = (digits & before) | ((digits >> 8) & ~before);
    --count;
  }
  const size_t shift = 8 * (8 - count);
  if (shift > 0) digits = (digits << shift) | ((kEach * '0') >> (64 - shift));
  uint64_t number = 0;
  if (!read_digits(digits, number)) return false;
  value = static_cast<double>(number) / kTens[fraction];
  if (negative) value = -value;
  return true;
}

/// Returns whether the value, whose absolute value is at most kExactMax, has no fraction.
bool has_no_fraction(double value) {
  return value == static_cast<double>(static_cast<int64_t>(value));
}

/// Removes the mark between groups of digits from the beginning of `text`. A space also stands for
/// the no-break spaces that are used like it.
bool take_mark(std::string_view& text, std::string_view mark) {
  if (text.starts_with(mark)) {
    text.remove_prefix(mark.size());
    return true;
  }
  if (mark != " ") return false;
  for (const std::string_view space : kNoBreakSpaces) {
    if (!text.starts_with(space)) continue;
    text.remove_prefix(space.size());
    return true;
  }
  return false;
}

/// Appends the whole part of a number without its marks. Returns false if a group after a mark does
/// not have three digits, or the first one has more.
bool take_groups(std::string_view& text, std::string_view mark, std::string& out) {
  size_t group = 0;
  bool marked = false;
  for (;;) {
    if (!text.empty() && is_digit(text.front())) {
      out += text.front();
      text.remove_prefix(1);
      ++group;
    } else if (group > 0 && take_mark(text, mark)) {
      const bool leading_zero = !marked && group == 1 && out.ends_with('0');
      if (leading_zero || (marked ? group != 3 : group > 3)) return false;
      marked = true;
      group = 0;
    } else {
      return !marked || group == 3;
    }
  }
}

/// Converts a number in the style to one with a decimal point. Returns false if it is none.
bool to_plain(std::string_view text, const NumberStyle& style, std::string& out) {
  if (text.starts_with(kMinusSign)) {
    out += '-';
    text.remove_prefix(kMinusSign.size());
  } else if (text.starts_with('-') || text.starts_with('+')) {
    if (text.front() == '-') out += '-';
    text.remove_prefix(1);
  }
  if (style.thousands.empty()) {
    while (!text.empty() && is_digit(text.front())) {
      out += text.front();
      text.remove_prefix(1);
    }
  } else if (!take_groups(text, style.thousands, out)) {
    return false;
  }
  if (!text.empty() && text.front() == style.decimal) {
    out += '.';
    text.remove_prefix(1);
  }
  const size_t end = text.find_first_not_of("0123456789eE+-");
  if (end != text.npos) return false;
  out += text;
  return true;
}

}  // namespace

std::span<const std::string_view> missing_numbers() { return kMissingNumbers; }

bool Cell::is_whole() const {
  if (!is_number()) return false;
  return std::abs(value) < kExactMax ? has_no_fraction(value) : digits;
}
bool Cell::is_byte() const {
  return is_number() && value >= 0 && value <= 255 && has_no_fraction(value);
}

CellReader::CellReader(const std::vector<std::string>& missing, NumberStyle style)
    : style_(std::move(style)),
      plain_(style_.decimal == '.' && style_.thousands.empty()),
      empty_is_missing_(true),
      named_(!missing.empty()) {
  const std::span<const std::string_view> defaults = missing_numbers();
  owned_ = named_ ? missing : std::vector<std::string>(defaults.begin(), defaults.end());
  for (const std::string& marker : owned_) {
    if (marker.empty()) continue;
    const Cell number = read_number(marker);
    if (number.is_number()) missing_values_.push_back(number.value);
    missing_.insert(marker);
    size_t& longest = longest_[static_cast<unsigned char>(marker.front())];
    longest = std::max(longest, marker.size());
  }
}

Cell CellReader::read(std::string_view text) const {
  double value = 0;
  if (plain_ && missing_values_.empty() && read_short_number(text, value)) {
    return {Cell::Kind::kNumber, value};
  }
  if (is_missing(text)) return {Cell::Kind::kMissing, 0};
  const Cell cell = read_number(text);
  if (cell.is_number() && std::ranges::find(missing_values_, cell.value) != missing_values_.end()) {
    return {Cell::Kind::kMissing, 0};
  }
  return cell;
}

Cell CellReader::read_number(std::string_view text) const {
  if (plain_) return read_plain(text);
  if (plain_first_) {
    const Cell cell = read_plain(text);
    if (cell.kind != Cell::Kind::kText) return cell;
  }
  std::string converted;
  if (to_plain(text, style_, converted)) return read_plain(converted);
  // A number in another style is a text, but "inf" is none in any style.
  const bool other = text.find_first_of("0123456789") != text.npos;
  return other && !also_plain_ ? Cell{Cell::Kind::kText, 0} : read_plain(text);
}

Cell CellReader::read_plain(std::string_view text) const {
  double value = 0;
  if (read_short_number(text, value)) return {Cell::Kind::kNumber, value};
  std::string converted;
  std::string_view digits = text;
  if (digits.starts_with(kMinusSign)) {
    converted = "-" + std::string(digits.substr(kMinusSign.size()));
    digits = converted;
  }
  if (digits.starts_with('+') && !digits.starts_with("+-") && !digits.starts_with("++")) {
    digits.remove_prefix(1);  // from_chars() does not accept a plus sign
  }
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error == std::errc::invalid_argument ||
      stop != digits.data() + digits.size() || digits.back() == ')') {
    return {Cell::Kind::kText, 0};
  }
  if (error == std::errc::result_out_of_range) {  // too large, or too close to 0
    const bool tiny = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
    return {tiny ? Cell::Kind::kNumber : Cell::Kind::kNotFinite, 0};
  }
  // Values are stored in 32 bits, so a number that would become infinite there is refused.
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return {Cell::Kind::kNotFinite, value};
  }
  const bool only_digits =
      std::abs(value) >= kExactMax &&
      digits.find_first_not_of("0123456789", digits[0] == '-' ? 1 : 0) == digits.npos;
  return {Cell::Kind::kNumber, value, only_digits};
}

std::string whole_number_text(double value) { return std::to_string(static_cast<int64_t>(value)); }

std::string whole_number_name(const Cell& cell, std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::string(text);
  if (std::abs(cell.value) < kExactMax) return whole_number_text(cell.value);
  return std::string(text.starts_with('+') ? digits : text);
}

}  // namespace trainyard
