// src/data/tokenizers/character_set.h: the characters that one place of a pattern matches.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trainyard {

class CharacterSet {
 public:
  /// White_Space, and the letters, marks, digits and connectors of words.
  enum class Kind : uint8_t { kSpace, kWord };

  void add_range(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void add_kind(Kind kind, bool negated) { kinds_.push_back({kind, negated}); }
  /// Adds the characters of general categories: bit i is utf8proc's category i.
  void add_categories(uint32_t categories) { categories_ |= categories; }
  void add_set(CharacterSet set) { sets_.push_back(std::move(set)); }
  /// Keeps only characters that `set` has too.
  void intersect(CharacterSet set) { also_.push_back(std::move(set)); }
  void negate() { negated_ = !negated_; }
  void ignore_case() { ignores_case_ = true; }
  /// Call it once after the last change.
  void finish();

  bool contains(char32_t c) const { return c < 128 ? ascii_[c] : contains_slowly(c); }

 private:
  struct Range {
    char32_t first, last;
  };
  struct KindItem {
    Kind kind;
    bool negated;
  };
  bool contains_slowly(char32_t c) const;
  bool has(char32_t c) const;

  std::vector<Range> ranges_;
  std::vector<KindItem> kinds_;
  std::vector<CharacterSet> sets_, also_;
  uint32_t categories_ = 0;
  bool negated_ = false;
  bool ignores_case_ = false;
  std::array<bool, 128> ascii_{};
};

/// Returns the general categories of a property's name, as bits: "L", "Lu"; nullopt: not known.
std::optional<uint32_t> find_categories(std::string_view name);

/// Returns true for the characters of words by the rules of the library in which tokenizers is
/// written, which are those of Unicode. Oniguruma's differ slightly.
bool is_unicode_word(char32_t c);

/// Returns a character that is the same for all characters that differ only in case.
char32_t fold_case(char32_t c);

}  // namespace trainyard
