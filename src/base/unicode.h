// src/base/unicode.h: Unicode's rules for single characters and their combinations, by utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

/// Returns well-formed UTF-8 in the composed form NFC, in which equal texts have equal bytes: macOS
/// writes 'é' in names of files as 'e' and a combining accent, others as one character. Other bytes
/// are returned unchanged.
std::string nfc(std::string_view text);

/// Returns true if text is certainly in NFC; false means that nfc() must be called to find out.
bool is_quickly_nfc(std::string_view text);

/// Converts a code point to lower case, if that is a single code point.
char32_t lower_case(char32_t code_point);

}  // namespace trainyard
