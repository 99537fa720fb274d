// src/data/tokenizers/charsmap.h: SentencePiece's normalization rules in compiled form: a
// double-array trie of texts that are replaced, and their replacements.
//
// Source: Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure" (1989);
// the form is that of the library darts-clone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

class Charsmap {
 public:
  struct Match {
    size_t bytes;               // of the text that is replaced
    std::string_view in_place;  // what takes its place
  };

  /// Without rules.
  Charsmap() = default;
  /// Refusal: TOKENIZER_INVALID with `field`.
  static Result<Charsmap> read(std::string_view bytes, const std::string& field);

  bool empty() const { return units_.empty(); }
  /// Finds the rules for beginnings of `text`.
  std::optional<Match> find_shortest(std::string_view text) const;
  std::optional<Match> find_longest(std::string_view text) const;

 private:
  template <typename Visit>
  void visit_rules(std::string_view text, Visit visit) const;
  Match match(size_t bytes, uint32_t place) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace trainyard
