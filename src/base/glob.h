// src/base/glob.h: name patterns as in a shell: * matches any characters, ? exactly one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

/// The greatest length of a pattern in a spec, in bytes.
inline constexpr size_t kPatternLengthMax = 256;
/// The most patterns in one list of a spec, since each is compared with every parameter's name.
inline constexpr size_t kPatternsMax = 256;
/// Returns the error text for a list of `count` patterns, which is too long.
inline std::string too_many(size_t count) {
  return "has " + std::to_string(count) + " entries, expected at most " +
         std::to_string(kPatternsMax);
}

/// Returns true if the pattern matches the whole `text`. Takes time in proportion to the product of
/// the lengths at most.
bool glob_match(std::string_view pattern, std::string_view text);

/// Returns true if one of the patterns matches the whole `text`.
bool matches_any(std::span<const std::string> patterns, std::string_view text);

}  // namespace trainyard
