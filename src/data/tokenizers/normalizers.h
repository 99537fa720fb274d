// src/data/tokenizers/normalizers.h: the rewriting of a text before it is cut, by the kinds of
// normalizers that tokenizer.json has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/unicode.h"
#include "src/data/tokenizers/charsmap.h"
#include "src/data/tokenizers/pattern.h"
#include "src/data/tokenizers/text_pieces.h"

namespace trainyard {

/// Const and thread-safe. All kinds of rewriting give well-formed UTF-8 for well-formed UTF-8.
class TextRewriter {
 public:
  virtual ~TextRewriter() = default;
  virtual void apply(TextPieces& pieces) const = 0;
};
using TextRewriters = std::vector<std::unique_ptr<const TextRewriter>>;

struct BertSettings {
  bool clean_text = true;      // without control characters; all white space becomes blanks
  bool split_chinese = true;   // blanks around ideographs
  bool strip_accents = false;  // without marks
  bool lower_case = true;
};

/// NFC, NFD, NFKC, NFKD.
std::unique_ptr<const TextRewriter> make_form_rewriter(UnicodeForm form);
std::unique_ptr<const TextRewriter> make_lower_case_rewriter();
/// Removes all marks.
std::unique_ptr<const TextRewriter> make_accents_rewriter();
/// Puts a text in front of each piece that is not empty.
std::unique_ptr<const TextRewriter> make_prepend_rewriter(std::string text);
std::unique_ptr<const TextRewriter> make_replace_rewriter(Pattern pattern, std::string by);
/// Removes white space at the ends.
std::unique_ptr<const TextRewriter> make_strip_rewriter(bool left, bool right);
std::unique_ptr<const TextRewriter> make_charsmap_rewriter(Charsmap map);
/// Removes control characters and turns white space into blanks, as SentencePiece's nmt rules do.
std::unique_ptr<const TextRewriter> make_nmt_rewriter();
/// Writes each byte as its letter (byte_letters.h).
std::unique_ptr<const TextRewriter> make_byte_letters_rewriter();
void add_bert_rewriters(const BertSettings& settings, TextRewriters& out);

}  // namespace trainyard
