// src/data/text/subword_model.h: a trained SentencePiece model, and a tokenizer that splits text
// into its pieces.
//
// The model has the library's own file format, so that any SentencePiece library can load it and
// gives the same IDs. The library itself is not linked (src/subword), so a malicious model is
// parsed only by the code of this file.
//
// Pieces contain U+2581 in place of a blank. A character that no piece contains is encoded as its
// bytes, one token each. So is a U+2581 of the text, which would otherwise be decoded as a blank.
// Thus every UTF-8 text can be encoded, and decoding gives the same text.
//
// Sources: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units"
// (ACL 2016); Kudo, "Subword Regularization" (ACL 2018); Kudo, Richardson, "SentencePiece"
// (EMNLP 2018).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/text/tokenizer.h"

namespace trainyard {

struct SubwordModel {
  bool unigram = false;              // false: BPE
  std::vector<std::string> pieces;   // indexed by the model's ids; 0 is the unknown token
  std::vector<float> scores;         // BPE: higher for earlier merges; unigram: log probabilities
  std::vector<bool> is_byte;         // whether the piece stands for a byte, as "<0x0A>"
  std::array<int32_t, 256> bytes{};  // the id of each byte's piece
};

/// Reads a model in the form that trainyard-tokenizer writes. Refusal:
/// INVALID_ARGUMENT/TOKENIZER_INVALID.
Result<SubwordModel> read_subword_model(TokenizerKind kind, std::string_view bytes);

/// Token ids are the model's ids plus `first`.
std::unique_ptr<const Tokenizer> make_subword_tokenizer(SubwordModel model, int32_t first);

/// Returns the text of a piece; empty for the unknown token.
std::string text_of_piece(const SubwordModel& model, size_t id);

}  // namespace trainyard
