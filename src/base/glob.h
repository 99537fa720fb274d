// src/base/glob.h: name patterns as in a shell: * is any run of characters, ? any one character.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

/// Characters of a pattern that a spec may give.
inline constexpr size_t kPatternLengthMax = 256;
/// Patterns in one list of a spec: each is held against the name of every parameter.
inline constexpr size_t kPatternsMax = 256;
/// What to say about a longer list.
inline std::string too_many(size_t count) {
  return "has " + std::to_string(count) + " entries, expected at most " +
         std::to_string(kPatternsMax);
}

/// True if the whole of `text` matches. Time is at most the product of the lengths.
bool glob_match(std::string_view pattern, std::string_view text);

/// True if one of the patterns does.
bool matches_any(std::span<const std::string> patterns, std::string_view text);

}  // namespace trainyard
