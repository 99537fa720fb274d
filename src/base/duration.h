// src/base/duration.h: converts durations such as "90d" to seconds and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

/// Returns the seconds that a text such as "90d", "12h", "30m" or "45s" means; "0" needs no unit.
/// nullopt for any other text, and for a number above a billion.
std::optional<int64_t> parse_duration(std::string_view text);

/// Writes `seconds` in the largest unit that needs no fraction, as parse_duration() reads it:
/// "90d".
std::string duration_text(int64_t seconds);

}  // namespace trainyard
