// src/data/tokenizers/adjacent_characters.h: cuts a text where no token can cross, so that its
// stretches are encoded by themselves and can be cached.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "src/base/text.h"

namespace trainyard {

/// The pairs of characters that are adjacent in the text of any token. No token crosses another
/// pair. Texts are UTF-8.
class AdjacentCharacters {
 public:
  bool empty() const { return pairs_.empty(); }

  /// Adds the pairs of a token.
  void add(std::string_view token) {
    visit_pairs(token, [this](char32_t before, char32_t after, size_t) {
      pairs_.insert(pair_of(before, after));
    });
  }

  /// Calls visit(begin, end) for each stretch of a text, in order. The text must not be empty.
  template <typename F>
  void visit_stretches(std::string_view text, const F& visit) const {
    size_t begin = 0;
    visit_pairs(text, [&](char32_t before, char32_t after, size_t at) {
      if (pairs_.contains(pair_of(before, after))) return;
      visit(begin, at);
      begin = at;
    });
    visit(begin, text.size());
  }

 private:
  static uint64_t pair_of(char32_t before, char32_t after) {
    return uint64_t{before} << 32 | after;
  }

  /// Calls visit(before, after, at) for two neighbors in a text, the second of which begins at
  /// `at`.
  template <typename F>
  static void visit_pairs(std::string_view text, const F& visit) {
    if (text.empty()) return;
    std::string_view rest = text;
    for (char32_t before = take_code_point(rest); !rest.empty();) {
      const size_t at = text.size() - rest.size();
      const char32_t after = take_code_point(rest);
      visit(before, after, at);
      before = after;
    }
  }

  std::unordered_set<uint64_t> pairs_;
};

}  // namespace trainyard
