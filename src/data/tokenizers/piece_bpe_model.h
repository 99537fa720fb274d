// src/data/tokenizers/piece_bpe_model.h: BPE as SentencePiece does it: a whole text is cut at once,
// and two neighbors are joined if the result is a piece, that with the highest score first.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "src/data/tokenizers/adjacent_characters.h"
#include "src/data/tokenizers/token_model.h"
#include "src/data/tokenizers/unigram_model.h"
#include "src/data/tokenizers/word_cache.h"

namespace trainyard {

struct PieceBpeSettings {
  int32_t unknown = -1;
  bool byte_fallback = false;
  std::vector<bool> matched;       // by id: normal and user-defined pieces
  std::vector<bool> user_defined;  // by id: pieces that are never cut or joined
};

class PieceBpeModel final : public TokenModel {
 public:
  PieceBpeModel(std::shared_ptr<const TokenNames> names, std::vector<double> scores,
                PieceBpeSettings settings);
  void encode(std::string_view piece, PieceTokens& out) const override;

 private:
  struct Segment {
    int32_t before, after;  // indices of the neighbors; -1: none
    size_t begin, end;      // in the text; the end is 0 once it is joined to the one before
    bool fixed;             // a user-defined piece
  };
  class Joiner;

  int32_t find_piece(std::string_view text) const;
  void encode_stretch(std::string_view piece, size_t begin, size_t end, PieceTokens& out) const;
  void add_token(std::string_view text, size_t begin, PieceTokens& out) const;

  std::shared_ptr<const TokenNames> names_;
  std::vector<double> scores_;
  PieceBpeSettings settings_;
  TokenTrie user_trie_;
  std::array<int32_t, 256> byte_tokens_{};
  AdjacentCharacters adjacent_;
  mutable WordCache stretches_;
};

}  // namespace trainyard
