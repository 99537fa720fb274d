// src/data/tokenizer.h: text to tokens. What a tokenizer knows is its schema, which is stored with
// the dataset and travels with every model; how it cuts text is behind one interface, so that a new
// kind is a new class and a name.
//
//   byte   one token for each byte
//   char   one token for each code point
//   word   one token for each word: a run of letters, digits and code points beyond ASCII that are
//          no blanks, in lower case; all else separates words and is dropped
//
// Ids: the padding (if the dataset has rows of fixed length) is 0; then the unknown token (char and
// word); then the pieces in their order. A byte's id is its value behind the padding.
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

enum class TokenizerKind : uint8_t { kByte, kChar, kWord };
std::string_view name_of(TokenizerKind kind);
/// Nothing for a name that is none.
std::optional<TokenizerKind> find_tokenizer(std::string_view name);

struct TextSchema {
  TokenizerKind tokenizer = TokenizerKind::kChar;
  /// char, word: the known ones; UTF-8, no two alike. Characters are sorted, words stand by falling
  /// frequency.
  std::vector<std::string> pieces;
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

/// Finds the pieces of a training text, given in parts (rows, or one part).
class VocabularyCounter {
 public:
  explicit VocabularyCounter(TokenizerKind kind) : kind_(kind) {}
  /// Refuses, by DATASET_INVALID, text of more different words than can be counted. UTF-8.
  Status add(std::string_view text, const std::string& what);
  /// The most frequent pieces, at most `pieces_max`; ties go to the smaller one.
  std::vector<std::string> pieces(int64_t pieces_max) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  TokenizerKind kind_;
  std::vector<int64_t> code_points_;  // char: how often, by code point
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
};

/// Lower case of a code point: ASCII, Latin-1, Greek and Cyrillic; others as they are.
char32_t lower_case(char32_t code_point);

}  // namespace trainyard
