// src/data/text/tokenizer.h: converts text to tokens. A tokenizer's data is a TextSchema, which is
// stored with the dataset and with every model. All kinds implement one interface, so that a new
// kind needs only a class and a name.
//
//   byte   one token for each byte
//   char   one token for each code point
//   word   one token for each word by Unicode's rules, in lower case (word_break.h); what is
//          between words is dropped
//   bpe, unigram
//          pieces of words, learned by SentencePiece (subword_model.h)
//   pretrained
//          the tokenizer of a pretrained model, with its own ids (src/data/tokenizers)
//
// Ids, except for pretrained: 0 is the padding if the dataset has rows of fixed length. Next comes
// the unknown token, except for byte (for bpe and unigram it never occurs), then the pieces in
// order. The pieces of byte are all bytes in the order of their values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.h"
#include "src/data/tokenizers/tokenizer_files.h"

namespace trainyard {

class PretrainedTokenizer;
class SentenceSample;

enum class TokenizerKind : uint8_t { kByte, kChar, kWord, kBpe, kUnigram, kPretrained };
std::string_view name_of(TokenizerKind kind);
/// Returns nullopt for an unknown name.
std::optional<TokenizerKind> find_tokenizer(std::string_view name);
/// Returns true for bpe and unigram.
bool is_subword(TokenizerKind kind);
/// Returns true for word, bpe and unigram, for which the user chooses the number of pieces
/// (`vocabulary_size`).
bool is_sized(TokenizerKind kind);

struct TextSchema {
  TokenizerKind tokenizer = TokenizerKind::kChar;
  /// char, word: the known characters, sorted, or words by falling frequency; UTF-8 without
  /// duplicates. bpe, unigram: the model's pieces, except the unknown one, in the model's order.
  std::vector<std::string> pieces;
  /// bpe, unigram: SentencePiece's model, which read_subword_model() has accepted.
  std::string model;
  /// pretrained: the tokenizer's files, which set_tokenizer_files() has accepted; shared by copies
  /// of the schema. The members after it are what is known about the tokenizer without reading it.
  std::shared_ptr<const TokenizerFiles> files;
  int64_t pretrained_tokens = 0;  // one more than the highest id
  /// The token that ends a text; -1: there is none. Not of pretrained: the last id, if texts end
  /// with a token of their own (TextOptions::end_token), which has no text.
  int32_t end_token = -1;
  int32_t padding_token = -1;
  int32_t unknown_token = -1;
  /// Tokens per row; rows are truncated or padded to it. 0: the text is one stream, from which a
  /// job takes samples of its own context length.
  int64_t max_length = 0;

  bool stream() const { return max_length == 0; }
  int64_t padding_id() const;  // -1: there is no padding
  int64_t unknown_id() const;  // -1: byte has no unknown token
  int64_t first_piece_id() const;
  int64_t vocabulary_size() const;
  /// Returns the version of Unicode whose rules find the words, "15.0.0"; empty for other
  /// tokenizers than word.
  std::string_view unicode_version() const;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Appends the first `tokens_max` tokens of `text` at most. `text` must be UTF-8, except for
  /// byte.
  virtual void encode(std::string_view text, int64_t tokens_max,
                      std::vector<int32_t>& out) const = 0;
};
/// Const and thread-safe; borrows nothing.
std::unique_ptr<const Tokenizer> make_tokenizer(const TextSchema& schema);

/// Returns the text of each token: empty for padding and the unknown token, a single byte for a
/// byte's token.
std::vector<std::string> token_texts(const TextSchema& schema);

/// Sets `model` and `pieces` of `schema` to a model that trainyard-tokenizer has written. Refusal:
/// TOKENIZER_INVALID.
Status set_subword_model(std::string model, TextSchema& schema);

/// Sets the members of `schema` for the files of a pretrained tokenizer, which are read. Refusal:
/// TOKENIZER_INVALID.
Status set_tokenizer_files(TokenizerFiles files, TextSchema& schema);
/// Returns the tokenizer of a schema whose kind is pretrained.
PretrainedTokenizer pretrained_tokenizer(const TextSchema& schema);

/// Finds the pieces for a training text, which is added in one or several parts, such as rows.
class VocabularyCounter {
 public:
  explicit VocabularyCounter(TokenizerKind kind);
  ~VocabularyCounter();
  /// Adds a part of the text, which must be UTF-8 except for byte. Refuses more than
  /// kDistinctWordsMax different words: DATASET_INVALID.
  Status add(std::string_view text, const std::string& what);
  /// Sets the pieces of `schema`, which must have the constructor's tokenizer. A tokenizer for
  /// which is_sized() is true gets at most `pieces_max` pieces; word gets the most frequent words,
  /// of equal frequency the smaller ones. Refuses a text without any pieces; `field` names the
  /// options.
  Status learn(int64_t pieces_max, const std::string& field, TextSchema& schema) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::vector<std::string> count_pieces(int64_t pieces_max) const;

  TokenizerKind kind_;
  std::unique_ptr<SentenceSample> sample_;  // only for bpe and unigram
  std::vector<int64_t> code_points_;        // char: the number of occurrences by code point
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
};

}  // namespace trainyard
