#include "src/data/table/number_spelling.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace trainyard {
namespace {

constexpr size_t kUnitBytesMax = 16;

// Signs of a negative number: ASCII and U+2212.
constexpr auto kMinus = std::to_array<std::string_view>({"-", "\xe2\x88\x92"});
// Spaces: ASCII, U+00A0 and U+202F, which stand between a number and its unit.
constexpr auto kSpaces = std::to_array<std::string_view>({" ", "\t", "\xc2\xa0", "\xe2\x80\xaf"});

template <size_t N>
bool take_front(std::string_view& text, const std::array<std::string_view, N>& marks) {
  for (const std::string_view mark : marks) {
    if (!text.starts_with(mark)) continue;
    text.remove_prefix(mark.size());
    return true;
  }
  return false;
}

template <size_t N>
bool take_back(std::string_view& text, const std::array<std::string_view, N>& marks) {
  for (const std::string_view mark : marks) {
    if (!text.ends_with(mark)) continue;
    text.remove_suffix(mark.size());
    return true;
  }
  return false;
}

void trim(std::string_view& text) {
  while (take_front(text, kSpaces)) {
  }
  while (take_back(text, kSpaces)) {
  }
}

/// The parts of a cell.
struct CellParts {
  bool negative = false;
  bool account = false;  // negative by parentheses, or by a minus at the end
  std::string_view before, number, after;
};

/// Splits the text at its first and last digit. A decimal mark before the first digit belongs to
/// the number.
CellParts split_cell(std::string_view text, char decimal) {
  CellParts parts;
  trim(text);
  if (text.starts_with('(') && text.ends_with(')')) {
    parts.negative = parts.account = true;
    text = text.substr(1, text.size() - 2);
    trim(text);
  }
  size_t first = static_cast<size_t>(std::ranges::find_if(text, is_digit) - text.begin());
  const size_t last = text.find_last_of("0123456789");
  if (last == text.npos) return parts;
  if (first > 0 && text[first - 1] == decimal) --first;
  parts.before = text.substr(0, first);
  parts.number = text.substr(first, last + 1 - first);
  parts.after = text.substr(last + 1);
  if (parts.after.starts_with(decimal)) parts.after.remove_prefix(1);
  trim(parts.before);
  trim(parts.after);
  // The sign is before or after a currency, or at the end as in accounts.
  const bool at_end = take_back(parts.after, kMinus);
  const bool signed_number =
      at_end || take_front(parts.before, kMinus) || take_back(parts.before, kMinus);
  parts.account = parts.account || at_end;
  if (!signed_number && parts.before.starts_with('+')) parts.before.remove_prefix(1);
  parts.negative = parts.negative != signed_number;
  trim(parts.before);
  trim(parts.after);
  return parts;
}

// With at most this many different texts, a unit of letters may be a part of a name.
constexpr size_t kNamesMax = 20;

/// The styles in the order in which they are tried.
std::vector<NumberStyle> possible_styles(char delimiter) {
  const std::vector<NumberStyle> points = {
      {'.', ""}, {'.', ","}, {'.', " "}, {'.', "'"}, {'.', "\xe2\x80\x99"}};
  const std::vector<NumberStyle> commas = {
      {',', ""}, {',', "."}, {',', " "}, {',', "'"}, {',', "\xe2\x80\x99"}};
  std::vector<NumberStyle> styles = delimiter == ';' ? commas : points;
  const std::vector<NumberStyle>& others = delimiter == ';' ? points : commas;
  styles.insert(styles.end(), others.begin(), others.end());
  return styles;
}

bool has_letter(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

/// Returns whether the text before a number is a currency. Other words make a name: "Grade 1".
bool is_currency(std::string_view text) {
  static constexpr auto kCodes =
      std::to_array<std::string_view>({"USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "AUD",
                                       "CAD", "US$", "R$", "Rs", "Rs.", "kr"});
  return !has_letter(text) || std::ranges::find(kCodes, text) != kCodes.end();
}

std::optional<NumberSpelling> try_style(std::span<const std::string_view> texts,
                                        const NumberStyle& style) {
  const CellReader cells({}, style);
  NumberSpelling found{style};
  size_t letters = 0, accounts = 0;  // texts with a unit of letters, and negative ones of accounts
  for (const std::string_view text : texts) {
    const SpelledNumber number = read_spelled(cells, text);
    if (!number.cell.is_number()) return std::nullopt;
    if (cells.read(text).is_number()) continue;
    found.spelled = true;
    const CellParts parts = split_cell(text, style.decimal);
    accounts += parts.account ? 1 : 0;
    if (number.unit.empty()) continue;
    if (found.unit.empty()) found.unit = number.unit;
    if (number.unit != found.unit || !is_currency(parts.before)) return std::nullopt;
    letters += has_letter(parts.after) ? 1 : 0;
  }
  // A unit of letters may as well be a part of a few names, or of names such as "136A". If all
  // numbers were negative, "50-" would rather begin a range.
  const bool names = texts.size() <= kNamesMax || 2 * letters < texts.size();
  if ((letters > 0 && names) || accounts == texts.size()) return std::nullopt;
  return found;
}

}  // namespace

std::optional<NumberSpelling> find_spelling(std::span<const std::string_view> texts,
                                            char delimiter) {
  if (texts.empty()) return std::nullopt;
  for (const NumberStyle& style : possible_styles(delimiter)) {
    if (const auto found = try_style(texts, style)) return found;
  }
  return std::nullopt;
}

SpelledNumber read_spelled(const CellReader& cells, std::string_view text) {
  const Cell plain = cells.read(text);
  if (plain.kind != Cell::Kind::kText) return {plain};
  const CellParts parts = split_cell(text, cells.style().decimal);
  const auto is_bound = [](std::string_view mark) {
    return mark.find_first_of("<>~=+") != mark.npos;  // "<5" and "3+" are no numbers
  };
  if (parts.number.empty() || parts.before.size() + parts.after.size() > kUnitBytesMax ||
      is_bound(parts.before) || is_bound(parts.after)) {
    return {plain};
  }
  SpelledNumber spelled{cells.read(parts.number)};
  if (!spelled.cell.is_number()) return {plain};
  if (parts.negative) spelled.cell.value = -spelled.cell.value;
  spelled.unit = parts.before;
  if (!parts.before.empty() && !parts.after.empty()) spelled.unit += ' ';
  spelled.unit += parts.after;
  return spelled;
}

}  // namespace trainyard
