// src/data/tokenizers/token_decoders.h: how tokens become text again, by the kinds of decoders that
// tokenizer.json has. A decoder is a chain of steps that rewrite the list of the tokens' names; the
// text is what is left, joined.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/tokenizers/pattern.h"

namespace trainyard {

/// Const and thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  /// Rewrites the names of tokens, in order.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  /// Rewrites the name of a token that is neither the first nor the last one.
  virtual void apply_inside(std::string& token) const = 0;
};
using DecoderSteps = std::vector<std::unique_ptr<const DecoderStep>>;

/// Letters become the bytes they stand for (byte_letters.h). A name with other letters is text.
std::unique_ptr<const DecoderStep> make_byte_letters_decoder();
/// "<0x0A>" becomes a byte.
std::unique_ptr<const DecoderStep> make_byte_token_decoder();
/// `mark` becomes a blank. `drop_first`: it is removed from the first token.
std::unique_ptr<const DecoderStep> make_metaspace_decoder(std::string mark, bool drop_first);
std::unique_ptr<const DecoderStep> make_replace_decoder(Pattern pattern, std::string by);
/// Makes one token of all.
std::unique_ptr<const DecoderStep> make_fuse_decoder();
/// Removes at most `start` times `text` from the begin of each token, and `stop` times from the
/// end.
std::unique_ptr<const DecoderStep> make_strip_decoder(std::string text, size_t start, size_t stop);
/// Puts blanks between words; `prefix` begins the tokens that continue a word. `cleanup`: no blanks
/// in front of English punctuation.
std::unique_ptr<const DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup);
/// `suffix` ends words: it becomes a blank, except for the last token.
std::unique_ptr<const DecoderStep> make_end_suffix_decoder(std::string suffix);
/// Puts a blank between all tokens.
std::unique_ptr<const DecoderStep> make_blanks_decoder();

/// Replaces the bytes that are not UTF-8: each longest beginning of a character by one U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace trainyard
