#include "src/base/glob.h"

#include <algorithm>

namespace trainyard {

// After a mismatch only the last * has to match one more character: the earlier stars matched as
// few characters as possible.
bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(std::span<const std::string> patterns, std::string_view text) {
  return std::ranges::any_of(patterns, [&](const auto& p) { return glob_match(p, text); });
}

}  // namespace trainyard
