// src/data/text/subword_model.h: a trained SentencePiece model, and text cut into its pieces.
//
// Reads the library's own file format, so that any SentencePiece library loads it and gives the
// same IDs. The library itself is not linked (src/subword): a manipulated model meets only the
// checks below.
//
// A blank stands in a piece as U+2581. A character that no piece has becomes its bytes, a token
// each, and so does a U+2581 of the text, which would otherwise come back as a blank: every text of
// UTF-8 can be told, and decodes to itself.
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
  bool unigram = false;             // else BPE
  std::vector<std::string> pieces;  // by the model's id; 0 is the unknown token
  std::vector<float> scores;        // BPE: the earlier a merge, the higher; unigram: log p
  std::vector<bool> is_byte;        // what stands for one byte, "<0x0A>"
  std::array<int32_t, 256> bytes{};
};

/// INVALID_ARGUMENT/TOKENIZER_INVALID for what trainyard-tokenizer does not write.
Result<SubwordModel> read_subword_model(TokenizerKind kind, std::string_view bytes);

/// Ids start at `first`: what the model calls 0 is `first`.
std::unique_ptr<const Tokenizer> make_subword_tokenizer(SubwordModel model, int32_t first);

/// A piece's text; nothing for the unknown token.
std::string text_of_piece(const SubwordModel& model, size_t id);

}  // namespace trainyard
