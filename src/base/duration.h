// src/base/duration.h: durations as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

/// Seconds of "90d", "12h", "30m", "45s"; 0 needs no unit. Nothing for any other text, and beyond a
/// billion of a unit.
std::optional<int64_t> parse_duration(std::string_view text);

/// The same, in the largest unit that needs no fraction: "90d".
std::string duration_text(int64_t seconds);

}  // namespace trainyard
