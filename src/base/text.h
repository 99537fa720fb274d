// src/base/text.h: helpers for the texts of messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

/// Returns `text` with its ASCII letters in lower case.
std::string lower(std::string_view text);

/// Returns the candidate that a user who wrote `word` probably meant: the one for which other tools
/// use `word` (mean_squared_error for "mse"), else the one with the smallest edit distance to
/// `word`, if that is at most 1 + length / 3 and less than half of the longer one's letters. Two
/// neighbors that are exchanged count as one edit. Ignores case.
std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string> candidates);

/// Returns `value` in quotes for an error message, cut to 64 bytes, with control bytes and
/// non-ASCII bytes escaped as \xNN.
std::string quoted_value(std::string_view value);

/// Returns true for well-formed UTF-8 (no overlong forms, no surrogates). Names must be, since they
/// are stored in JSON.
bool is_utf8(std::string_view text);
/// Returns the offset of the first byte that is not part of well-formed UTF-8; nullopt if `text` is
/// well-formed.
std::optional<size_t> find_invalid_utf8(std::string_view text);
/// Removes the first code point from `text`, which must be well-formed UTF-8 and not empty, and
/// returns it.
char32_t take_code_point(std::string_view& text);
void append_utf8(std::string& text, char32_t code_point);

/// Returns `value` with six significant digits, as printf's %g writes it: 0.001, 1e-05.
std::string short_number(double value);

/// Converts 1536 to "1.5 KiB", with three significant digits and binary units.
std::string human_bytes(int64_t bytes);

}  // namespace trainyard
