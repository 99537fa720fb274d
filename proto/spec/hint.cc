#include "proto/spec/hint.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard::spec {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string replaced(std::string text, char from, std::string_view to) {
  const size_t at = text.find(from);
  return text.replace(at, 1, to);
}

std::string without_commas(std::string text) {
  std::erase(text, ',');
  return text;
}

/// Returns whether the text has separators of thousands, such as "1,000" or "12,345,678".
bool has_thousands(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  size_t group = text.find(',');
  if (group == 0 || group == text.npos || group > 3 || text[0] == '0') return false;
  if (!is_digits(text.substr(0, group))) return false;
  for (; group < text.size(); group += 4) {
    if (text[group] != ',' || group + 4 > text.size()) return false;
    if (!is_digits(text.substr(group + 1, 3))) return false;
  }
  return true;
}

/// Returns whether the text is a number with a decimal comma, such as "0,5".
bool has_decimal_comma(const std::string& text) {
  return std::ranges::count(text, ',') == 1 && is_number(replaced(text, ',', "."));
}

/// Returns whether `entry` is the second part of a value that a comma divided, and `value` its
/// first part.
bool is_rest(const Value& value, const Entry& entry) {
  if (value.kind != Value::Kind::kScalar || value.quoted) return false;
  if (entry.value.kind != Value::Kind::kNull) return false;
  const bool tuple = value.text.starts_with('(') && !value.text.ends_with(')');
  return tuple ||
         (is_digits(entry.key) && (is_whole_number(value.text) || has_thousands(value.text)));
}

}  // namespace

std::vector<Entry> rejoined(const std::vector<Entry>& entries) {
  std::vector<Entry> out;
  for (const Entry& entry : entries) {
    if (out.empty() || !is_rest(out.back().value, entry)) {
      out.push_back(entry);
      continue;
    }
    std::string& text = out.back().value.text;
    text += (text.starts_with('(') ? ", " : ",") + entry.key;
  }
  return out;
}

std::string number_expected(const std::string& text) {
  if (text.starts_with('.') && is_number("0" + text)) return "a number such as 0" + text;
  const std::string word = lower(text);
  if (word == ".nan" || word == ".inf" || word == "-.inf" || word == "nan" || word == "inf" ||
      word == "infinity") {
    return "a finite number";
  }
  const std::string whole =
      has_thousands(text) ? " without separators: " + without_commas(text) : "";
  if (!has_decimal_comma(text)) return "a number" + whole;
  return "a number" + whole + (whole.empty() ? "" : ", or") +
         " with a decimal point: " + replaced(text, ',', ".");
}

std::string whole_number_hint(const std::string& text) {
  if (has_thousands(text)) return " without separators: " + without_commas(text);
  return text.size() > 1 && text[0] == '0' && is_digits(text) ? " without leading zeros" : "";
}

std::string list_hint(const std::string& text) {
  if (!text.starts_with('(')) return "";
  const std::string inner = text.substr(1, text.size() - 2);
  const bool is_whole = text.ends_with(')') && inner.find_first_of("()") == std::string::npos;
  return "; a list has square brackets" + (is_whole ? ": [" + inner + "]" : "");
}

}  // namespace trainyard::spec
