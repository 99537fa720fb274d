#include "src/base/resource_id.h"

#include <algorithm>

namespace trainyard {
namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

}  // namespace

bool is_resource_id(std::string_view text, size_t chars_max) {
  return !text.empty() && text.size() <= chars_max && is_lower(text.front()) &&
         text.back() != '-' &&
         std::ranges::all_of(text, [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

std::string resource_id_of(std::string_view text, size_t chars_max) {
  std::string id;
  for (const char c : text) {
    if (is_lower(c) || is_digit(c)) {
      id += c;
    } else if (is_upper(c)) {
      id += static_cast<char>(c - 'A' + 'a');
    } else if (!id.empty() && id.back() != '-') {
      id += '-';
    }
  }
  id.resize(std::min(id.size(), chars_max));
  while (!id.empty() && id.back() == '-') id.pop_back();
  return is_resource_id(id, chars_max) ? id : "";
}

std::string resource_id_rule(size_t chars_max) {
  return "1 to " + std::to_string(chars_max) +
         " characters of a-z, 0-9 and dash, beginning with a letter and not ending with a dash";
}

}  // namespace trainyard
