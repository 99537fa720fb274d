// src/base/unicode.h: Unicode's rules for single characters and their combinations, by utf8proc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// Returns well-formed UTF-8 in the composed form NFC, in which equal texts have equal bytes: macOS
/// writes 'é' in names of files as 'e' and a combining accent, others as one character. Other bytes
/// are returned unchanged.
std::string nfc(std::string_view text);

/// Returns true if text is certainly in NFC; false means that nfc() must be called to find out.
bool is_quickly_nfc(std::string_view text);

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
/// Returns well-formed UTF-8 in a normal form; other bytes are returned unchanged.
std::string unicode_form(std::string_view text, UnicodeForm form);
/// Returns the offsets in well-formed UTF-8 at which a character begins that does not combine with
/// what is before it in any normal form, so that the parts between them can be converted one by
/// one. The first is 0; there are none in an empty text.
std::vector<size_t> find_form_parts(std::string_view text);

/// Appends the lower case of a code point, which may be several ones: "i" and a dot for U+0130.
void append_lower_case(std::string& text, char32_t code_point);

/// Returns the general category as a number: Cn, Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc,
/// Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co from 0 on.
uint32_t unicode_category(char32_t code_point);
/// Groups of general categories.
bool is_letter(char32_t code_point);           // L
bool is_mark(char32_t code_point);             // M
bool is_nonspacing_mark(char32_t code_point);  // Mn
bool is_numeric(char32_t code_point);          // N
bool is_decimal_digit(char32_t code_point);    // Nd
bool is_connector(char32_t code_point);        // Pc
bool is_punctuation(char32_t code_point);      // P
bool is_other(char32_t code_point);            // Cc, Cf, Cs, Co
/// The property Alphabetic, or a mark, a decimal digit or a connector.
bool is_word_part(char32_t code_point);
/// The property White_Space.
bool is_white_space(char32_t code_point);

/// Returns the offsets at which user-perceived characters begin (Unicode Standard Annex #29,
/// extended grapheme clusters) in well-formed UTF-8.
std::vector<size_t> find_graphemes(std::string_view text);

/// Converts a code point to lower case, if that is a single code point.
char32_t lower_case(char32_t code_point);
/// Converts a code point to upper case, if that is a single code point.
char32_t upper_case(char32_t code_point);

}  // namespace trainyard
