// src/data/tokenizers/pretrained_tokenizer.h: a tokenizer from the files of a pretrained model. Its
// ids are those of the programs with which the model was made: Hugging Face's tokenizers for
// tokenizer.json, SentencePiece for its models, tiktoken for ranks.
//
// Everything in a file that changes ids and is not known is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/tokenizers/tokenizer_files.h"

namespace trainyard {

class TokenPipeline;

/// Const and thread-safe. Copies share the tables.
class PretrainedTokenizer {
 public:
  /// Reads the tokenizer of a folder. Refusal: INVALID_ARGUMENT/TOKENIZER_INVALID, which names the
  /// file and the field.
  static Result<PretrainedTokenizer> read(const TokenizerFiles& files);

  /// Appends the tokens of `text`, which must be UTF-8. `special`: special tokens that occur in the
  /// text, such as "<|im_end|>", become their ids, as with transformers; else their characters are
  /// encoded as text. Nothing is added at the begin or end: see prefix() and suffix().
  /// `starts`, if not null, gets for each token the offset in `text` of the first byte that the
  /// token stands for; the offsets never fall.
  void encode(std::string_view text, bool special, std::vector<int32_t>& out,
              std::vector<uint32_t>* starts = nullptr) const;
  /// The tokens that the tokenizer puts before and after a single text, when special tokens are to
  /// be added (transformers' default): often the begin token, or none.
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix() const;

  /// Returns the text of the tokens, special tokens included. Bytes that are not UTF-8 are replaced
  /// by U+FFFD. Ids outside of the vocabulary have no text.
  std::string decode(std::span<const int32_t> tokens) const;
  /// Returns the bytes that a token contributes inside of a text, so that a text can be shown token
  /// by token. It is not always UTF-8: a token may be a part of a character.
  std::string piece(int32_t token) const;
  /// Returns the id of a token by its name in the file: "<|im_end|>".
  std::optional<int32_t> find(std::string_view token) const;
  /// Returns the name of a token in the file; empty if there is none with this id.
  std::string_view name(int32_t token) const;
  bool is_special(int32_t token) const;

  /// One more than the highest id. A model's table may have more rows.
  int64_t vocabulary_size() const;
  /// The token that ends a text or an answer (eos_token); -1: there is none.
  int32_t end_token() const;
  std::optional<int32_t> begin_token() const;
  std::optional<int32_t> padding_token() const;
  std::optional<int32_t> unknown_token() const;
  /// The tokens at which generation stops: the end token, and those of generation_config.json.
  std::span<const int32_t> stop_tokens() const;
  /// The text of `chat_template`; empty: there is none. Of several templates, the one named
  /// "default".
  const std::string& chat_template() const;

 private:
  struct Parts;
  explicit PretrainedTokenizer(std::shared_ptr<const Parts> parts);

  std::shared_ptr<const Parts> parts_;
};

}  // namespace trainyard
