#include "src/base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "src/base/text.h"

namespace trainyard {
namespace {

struct Range {
  char32_t first, last;
};
// Code points that never change in NFC, whatever is before and after them, in frequent scripts.
constexpr auto kStable = std::to_array<Range>({
    {0x0, 0x2ff},        // Latin
    {0x388, 0x482},      // Greek, Cyrillic
    {0x48a, 0x590},      // Cyrillic, Armenian
    {0x5d0, 0x5ea},      // Hebrew
    {0x621, 0x64a},      // Arabic
    {0x2010, 0x2027},    // dashes, quotes
    {0x3041, 0x3096},    // Hiragana
    {0x30a0, 0x30fa},    // Katakana
    {0x3400, 0x9fff},    // ideographs
    {0xac00, 0xd7a3},    // Hangul syllables
    {0x1f300, 0x1faff},  // emoji
});

bool is_stable(char32_t c) {
  return std::ranges::any_of(kStable, [c](Range r) { return c >= r.first && c <= r.last; });
}

struct Free {
  void operator()(utf8proc_uint8_t* text) const { std::free(text); }
};

}  // namespace

bool is_quickly_nfc(std::string_view text) {
  // The bytes below 0xcc begin, or continue, code points below U+0300.
  const auto low = [](char c) { return static_cast<unsigned char>(c) < 0xcc; };
  if (std::ranges::all_of(text, low)) return true;
  if (!is_utf8(text)) return false;
  while (!text.empty()) {
    if (!is_stable(take_code_point(text))) return false;
  }
  return true;
}

std::string nfc(std::string_view text) {
  if (is_quickly_nfc(text)) return std::string(text);
  utf8proc_uint8_t* out = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t size =
      utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(out);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) return std::string(text);  // the bytes are not UTF-8
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
}

char32_t lower_case(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace trainyard
