// src/data/text/tokenizer.h: text to tokens. What a tokenizer knows is its schema, which is stored
// with the dataset and travels with every model; how it cuts text is behind one interface, so that
// a new kind is a new class and a name.
//
//   byte   one token for each byte
//   char   one token for each code point
//   word   one token for each word: a run of letters, digits and code points beyond ASCII that are
//          no blanks, in lower case; all else separates words and is dropped
//   bpe, unigram
//          pieces of words, learned by SentencePiece (subword_model.h)
//
// Ids: the padding (if the dataset has rows of fixed length) is 0; then the unknown token (all but
// byte; of bpe and unigram it never occurs); then the pieces in their order. A byte's id is its
// value behind the padding.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

class SentenceSample;

enum class TokenizerKind : uint8_t { kByte, kChar, kWord, kBpe, kUnigram };
std::string_view name_of(TokenizerKind kind);
/// Nothing for an unknown name.
std::optional<TokenizerKind> find_tokenizer(std::string_view name);
/// bpe, unigram.
bool is_subword(TokenizerKind kind);
/// Whether `vocabulary_size` decides how many pieces there are: word, bpe, unigram.
bool is_sized(TokenizerKind kind);

struct TextSchema {
  TokenizerKind tokenizer = TokenizerKind::kChar;
  /// char, word: the known ones; UTF-8, no two alike. Characters are sorted, words stand by falling
  /// frequency. bpe, unigram: those of the model but for the unknown one, as it has them.
  std::vector<std::string> pieces;
  /// bpe, unigram: SentencePiece's model, which read_subword_model() has read.
  std::string model;
  /// Tokens of a row, cut or padded to this. 0: the text is one stream, from which a job takes
  /// samples of its own context length.
  int64_t max_length = 0;

  bool stream() const { return max_length == 0; }
  int64_t padding_id() const { return stream() ? -1 : 0; }  // -1: there is none
  int64_t unknown_id() const;                               // -1: bytes are all known
  int64_t first_piece_id() const;
  int64_t vocabulary_size() const;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Appends the tokens of `text`, at most `tokens_max` of them. `text` is UTF-8, except for bytes.
  virtual void encode(std::string_view text, int64_t tokens_max,
                      std::vector<int32_t>& out) const = 0;
};
/// Const and thread-safe; borrows nothing.
std::unique_ptr<const Tokenizer> make_tokenizer(const TextSchema& schema);

/// Each token's text: nothing for padding and the unknown token, a single byte if the token is one.
std::vector<std::string> token_texts(const TextSchema& schema);

/// A model that trainyard-tokenizer has written becomes that of `schema`, with its pieces.
/// TOKENIZER_INVALID for any other.
Status set_subword_model(std::string model, TextSchema& schema);

/// Finds the pieces of a training text, given in parts (rows, or one part).
class VocabularyCounter {
 public:
  explicit VocabularyCounter(TokenizerKind kind);
  ~VocabularyCounter();
  /// Refuses, by DATASET_INVALID, text of more different words than can be counted. UTF-8, but for
  /// bytes, which have nothing to find.
  Status add(std::string_view text, const std::string& what);
  /// Gives `schema`, whose tokenizer is the one of the constructor, its pieces: those of a sized
  /// tokenizer are at most `pieces_max`; of words the most frequent, ties go to the smaller one.
  /// Refuses a text that has none at all, naming options of `field`.
  Status learn(int64_t pieces_max, const std::string& field, TextSchema& schema) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::vector<std::string> count_pieces(int64_t pieces_max) const;

  TokenizerKind kind_;
  std::unique_ptr<SentenceSample> sample_;  // bpe, unigram
  std::vector<int64_t> code_points_;        // char: how often, by code point
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
};

/// Lower case of a code point: ASCII, Latin-1, Greek and Cyrillic; others as they are.
char32_t lower_case(char32_t code_point);

}  // namespace trainyard
