#include "src/data/text/word_count.h"

#include <cstdint>
#include <utility>

#include "src/base/text.h"
#include "src/data/text/word_break.h"

namespace trainyard {
namespace {

constexpr int64_t kCharactersPerWord = 2;  // of scripts without blanks

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

bool is_letter_of_word(WordBreak kind) {
  return kind == WordBreak::kLetter || kind == WordBreak::kKatakana ||
         kind == WordBreak::kHebrewLetter || kind == WordBreak::kNumeric;
}

/// Returns whether the character belongs to the one before it, as a Thai vowel sign does.
bool is_attached_to_word(WordBreak kind) {
  return kind == WordBreak::kExtend || kind == WordBreak::kZeroWidthJoiner ||
         kind == WordBreak::kFormat;
}

/// Removes the first character and returns its class; kOther for ASCII, which a text in bytes is.
WordBreak take_class(std::string_view& text, bool utf8) {
  if (utf8 && !is_ascii(text.front())) return word_break_of(take_code_point(text));
  text.remove_prefix(1);
  return WordBreak::kOther;
}

}  // namespace

double count_words(std::string_view text) {
  const bool utf8 = is_utf8(text);
  int64_t words = 0, alone = 0;  // `alone`: characters so far without a blank between them
  bool in_word = false;
  while (!text.empty()) {
    const char first = text.front();
    const WordBreak kind = take_class(text, utf8);
    if (kind == WordBreak::kAlone) {
      ++alone;
      in_word = false;
      continue;
    }
    if (alone > 0 && is_attached_to_word(kind)) continue;
    // A mark such as an ideographic full stop begins no word.
    const bool mark = alone > 0 && !is_letter_of_word(kind) && !is_ascii(first);
    words += (std::exchange(alone, 0) + kCharactersPerWord - 1) / kCharactersPerWord;
    const bool blank = first == ' ' || first == '\t' || first == '\n';
    words += !blank && !mark && !in_word ? 1 : 0;
    in_word = !blank && !mark;
  }
  words += (alone + kCharactersPerWord - 1) / kCharactersPerWord;
  return static_cast<double>(words);
}

}  // namespace trainyard
