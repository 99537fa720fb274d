// src/data/tokenizers/pre_tokenizers.h: cuts a text into the pieces that a model encodes one by
// one, by the kinds of pre-tokenizers that tokenizer.json has. Some also rewrite the pieces.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/data/tokenizers/normalizers.h"
#include "src/data/tokenizers/pattern.h"
#include "src/data/tokenizers/text_pieces.h"

namespace trainyard {

/// Says which piece gets the text of a match at which a piece is cut.
enum class CutBehavior : uint8_t {
  kRemoved,             // none gets it
  kIsolated,            // a piece of its own
  kMergedWithPrevious,  // the end of the piece before it
  kMergedWithNext,
  kContiguous,  // successive matches are one piece
};
std::optional<CutBehavior> find_cut_behavior(std::string_view name);  // "Isolated"

/// `invert`: what is between the matches of the pattern is a match, and the other way around.
std::unique_ptr<const TextRewriter> make_pattern_cutter(Pattern pattern, CutBehavior behavior,
                                                        bool invert);
/// Cuts at the code points of a class.
using CodePointClass = bool (*)(char32_t);
std::unique_ptr<const TextRewriter> make_class_cutter(CodePointClass is_match,
                                                      CutBehavior behavior);
std::unique_ptr<const TextRewriter> make_character_cutter(char32_t delimiter);

/// ASCII's punctuation and Unicode's.
bool is_any_punctuation(char32_t code_point);

enum class PrependScheme : uint8_t { kFirst, kNever, kAlways };
/// Writes blanks as `mark`, puts one in front, and cuts in front of each.
std::unique_ptr<const TextRewriter> make_metaspace(std::string mark, PrependScheme scheme,
                                                   bool split);
/// Puts a blank in front of each piece that does not begin with one.
std::unique_ptr<const TextRewriter> make_blank_prepender();

/// The pattern by which GPT-2 cuts text.
std::string_view gpt2_pattern();

}  // namespace trainyard
