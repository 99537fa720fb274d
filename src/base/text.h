// src/base/text.h: small text helpers for messages that people read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

/// Capitals of ASCII as small letters.
std::string lower(std::string_view text);

/// What the candidates call what other tools call `word` (mse: mean_squared_error), or else the
/// candidate with the smallest edit distance to it, if it is close enough to be a likely typo
/// (distance at most 1 + length / 3). Capitals count as small letters.
std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string> candidates);

/// `value` for an error message: control bytes and non-ASCII escaped as \xNN, cut to 64 bytes,
/// quoted.
std::string quoted_value(std::string_view value);

/// True for well-formed UTF-8 (no overlong forms, no surrogates). Names are stored in JSON, which
/// holds nothing else.
bool is_utf8(std::string_view text);
/// Offset of the first byte that is not part of well-formed UTF-8; nothing if all of it is.
std::optional<size_t> find_invalid_utf8(std::string_view text);
/// Takes the first code point off `text`, which is well-formed UTF-8 and not empty.
char32_t take_code_point(std::string_view& text);
void append_utf8(std::string& text, char32_t code_point);

/// Six significant digits, as printf's %g: 0.001, 1e-05.
std::string short_number(double value);

/// 1536 -> "1.5 KiB". Three significant digits, binary units.
std::string human_bytes(int64_t bytes);

}  // namespace trainyard
