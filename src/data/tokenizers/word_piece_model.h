// src/data/tokenizers/word_piece_model.h: the models that look up words: WordPiece, which cuts a
// word into the longest known tokens from left to right, and WordLevel, which knows whole words
// only.
#pragma once

#include <memory>
#include <string>

#include "src/data/tokenizers/token_model.h"

namespace trainyard {

class WordPieceModel final : public TokenModel {
 public:
  /// A word that cannot be cut, or has more than `characters_max` characters, is `unknown`.
  WordPieceModel(std::shared_ptr<const TokenNames> names, int32_t unknown, std::string prefix,
                 int64_t characters_max);
  void encode(std::string_view piece, PieceTokens& out) const override;

 private:
  std::shared_ptr<const TokenNames> names_;
  int32_t unknown_;
  std::string prefix_;  // of the tokens that do not begin a word
  int64_t characters_max_;
  size_t longest_ = 0;  // bytes of the longest token
};

class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(std::shared_ptr<const TokenNames> names, int32_t unknown);
  void encode(std::string_view piece, PieceTokens& out) const override;

 private:
  std::shared_ptr<const TokenNames> names_;
  int32_t unknown_;  // -1: none
};

}  // namespace trainyard
