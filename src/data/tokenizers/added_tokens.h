// src/data/tokenizers/added_tokens.h: tokens that are found in a text before it is cut into pieces,
// such as "<|im_end|>".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizers/unigram_model.h"

namespace trainyard {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;   // looked for in the normalized text
  bool single_word = false;  // only where no letter or digit is next to it
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;
  std::string decoded = {};  // the text it becomes if that is not the content
};

/// Finds added tokens: of those that match, the leftmost one, of these the longest one.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  /// Looks for `text` as the token; an empty text is never found.
  void add(const AddedToken& token, std::string_view text);
  bool empty() const { return tokens_.empty(); }
  /// Returns the matches in a text, in order. `special`: whether special tokens are found.
  std::vector<Match> find(std::string_view text, bool special) const;

 private:
  TokenTrie trie_;
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> first_{};  // the bytes with which tokens begin
};

}  // namespace trainyard
