#include "src/base/safe_text.h"

#include <cstdio>

#include "src/base/text.h"

namespace trainyard {
namespace {

/// Returns whether a character is invisible and may change how other characters are displayed:
/// bidirectional overrides, zero-width characters, byte order marks, line separators.
bool is_invisible(char32_t c) {
  return (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe007f);
}

void append_byte(std::string& out, char byte) {
  char escaped[5];
  std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(byte));
  out += escaped;
}

void append_code_point(std::string& out, char32_t c) {
  if (c < 0x20) return append_byte(out, static_cast<char>(c));
  if (!is_invisible(c)) return append_utf8(out, c);
  char escaped[16];
  std::snprintf(escaped, sizeof escaped, "\\u{%x}", static_cast<unsigned>(c));
  out += escaped;
}

}  // namespace

std::string safe_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::string_view valid = text.substr(0, find_invalid_utf8(text).value_or(text.size()));
    text.remove_prefix(valid.size());
    while (!valid.empty()) append_code_point(out, take_code_point(valid));
    if (text.empty()) break;
    append_byte(out, text.front());
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace trainyard
