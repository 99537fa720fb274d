// src/data/tokenizers/token_pipeline.h: the parts of a tokenizer in the order in which a text goes
// through them. The readers of files build it (tokenizer_json.h, sentence_piece.h, token_ranks.h).
//
//   text -> added tokens -> normalizers -> added tokens of normalized text -> pre-tokenizers
//        -> model -> ids -> names -> decoders -> text
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/data/tokenizers/added_tokens.h"
#include "src/data/tokenizers/normalizers.h"
#include "src/data/tokenizers/token_decoders.h"
#include "src/data/tokenizers/token_model.h"
#include "src/data/tokenizers/word_cache.h"

namespace trainyard {

/// Const and thread-safe once it is built.
class TokenPipeline {
 public:
  std::shared_ptr<const TokenNames> names;  // the model's
  std::unique_ptr<const TokenModel> model;
  TextRewriters normalizers;
  TextRewriters pre_tokenizers;
  DecoderSteps decoders;
  std::vector<int32_t> prefix, suffix;  // around a single text

  /// Adds a token, whose id is the model's if the model has its name. Refusal: TOKENIZER_INVALID
  /// with `field`.
  Status add_token(AddedToken token, const std::string& field);
  /// Call it once after the last token and normalizer.
  void finish();

  void encode(std::string_view text, bool special, std::vector<int32_t>& out,
              std::vector<uint32_t>* starts) const;
  std::string decode(std::span<const int32_t> tokens) const;
  std::string piece(int32_t token) const;
  std::string_view name(int32_t token) const;
  int32_t find(std::string_view name) const;  // -1: none
  const AddedToken* find_added(int32_t token) const;
  int64_t size() const;

 private:
  struct Output;
  void encode_part(std::string_view text, size_t offset, bool special, Output& out) const;
  void encode_pieces(TextPieces& pieces, Output& out) const;
  std::string_view text_of_token(int32_t token) const;
  void encode_word(std::string_view word, PieceTokens& tokens) const;

  std::map<int32_t, AddedToken> added_;
  std::map<std::string, int32_t, std::less<>> added_ids_;
  AddedTokenFinder raw_, normalized_;
  mutable WordCache words_;
};

}  // namespace trainyard
