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

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

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
  return unicode_form(text, UnicodeForm::kNfc);
}

std::string unicode_form(std::string_view text, UnicodeForm form) {
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* out = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t size = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()),
                                             &out, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(out);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) return std::string(text);  // the bytes are not UTF-8
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
}

std::vector<size_t> find_form_parts(std::string_view text) {
  std::vector<size_t> parts;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t at = text.size() - rest.size();
    const char32_t c = take_code_point(rest);
    if (at == 0 || is_stable(c)) parts.push_back(at);
  }
  return parts;
}

void append_lower_case(std::string& text, char32_t c) {
  if (c == 0x130) {  // the only code point whose lower case is two
    text += 'i';
    append_utf8(text, 0x307);
  } else {
    append_utf8(text, lower_case(c));
  }
}

uint32_t unicode_category(char32_t c) { return static_cast<uint32_t>(category_of(c)); }

bool is_letter(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_mark(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}
bool is_nonspacing_mark(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_MN; }
bool is_numeric(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool is_decimal_digit(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }
bool is_connector(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_PC; }
bool is_punctuation(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}
bool is_other(char32_t c) { return category_of(c) >= UTF8PROC_CATEGORY_CC; }
bool is_word_part(char32_t c) {
  // The symbols that are alphabetic: letters in circles and squares.
  const bool enclosed = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  return enclosed || is_letter(c) || is_mark(c) || is_decimal_digit(c) || is_connector(c) ||
         category_of(c) == UTF8PROC_CATEGORY_NL;
}
bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::vector<size_t> find_graphemes(std::string_view text) {
  std::vector<size_t> begins;
  utf8proc_int32_t state = 0;
  utf8proc_int32_t before = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t at = text.size() - rest.size();
    const auto c = static_cast<utf8proc_int32_t>(take_code_point(rest));
    if (at == 0 || utf8proc_grapheme_break_stateful(before, c, &state)) begins.push_back(at);
    before = c;
  }
  return begins;
}

char32_t upper_case(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower_case(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace trainyard
