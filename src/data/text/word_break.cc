#include "src/data/text/word_break.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/text.h"
#include "src/base/unicode.h"

namespace trainyard {
namespace {

constexpr int kClassBits = 5;
constexpr uint32_t kClassMask = (1u << kClassBits) - 1;
constexpr char32_t kTabulated = 0x20000;  // code points below are looked up directly

WordBreak search_class(char32_t c) {
  const std::span<const uint32_t> starts = word_break_starts();
  const auto after = std::ranges::upper_bound(starts, (c << kClassBits) | kClassMask);
  return static_cast<WordBreak>(*(after - 1) & kClassMask);
}

std::vector<WordBreak> tabulate() {
  std::vector<WordBreak> classes(kTabulated);
  for (char32_t c = 0; c < kTabulated; ++c) classes[c] = search_class(c);
  return classes;
}

bool is_one_of(WordBreak c, std::initializer_list<WordBreak> classes) {
  return std::find(classes.begin(), classes.end(), c) != classes.end();
}
/// Returns whether the class is AHLetter of the annex.
bool is_letter(WordBreak c) {
  using enum WordBreak;
  return is_one_of(c, {kLetter, kHebrewLetter, kPictographicLetter});
}
bool is_mid_of_letters(WordBreak c) {
  using enum WordBreak;
  return is_one_of(c, {kMidLetter, kMidNumLet, kSingleQuote});
}
bool is_mid_of_numbers(WordBreak c) {
  using enum WordBreak;
  return is_one_of(c, {kMidNum, kMidNumLet, kSingleQuote});
}
/// Code points that belong to the one before them (WB4).
bool is_attached(WordBreak c) {
  using enum WordBreak;
  return is_one_of(c, {kExtend, kFormat, kZeroWidthJoiner});
}
bool makes_word(WordBreak c) {
  using enum WordBreak;
  return is_letter(c) ||
         is_one_of(c, {kNumeric, kKatakana, kAlone, kPictograph, kRegionalIndicator});
}

/// A text that is read one code point after another.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) { read(); }
  bool at_end() const { return end_; }
  WordBreak current() const { return class_; }
  const char* position() const { return begin_; }
  void advance() { read(); }
  /// Returns the class of the next code point after the current one that is not attached;
  /// WordBreak::kOther at the end.
  WordBreak following() const {
    std::string_view rest = rest_;
    while (!rest.empty()) {
      const WordBreak c = word_break_of(take_code_point(rest));
      if (!is_attached(c)) return c;
    }
    return WordBreak::kOther;
  }

 private:
  void read() {
    begin_ = rest_.data();
    end_ = rest_.empty();
    class_ = end_ ? WordBreak::kOther : word_break_of(take_code_point(rest_));
  }

  std::string_view rest_;  // after the current code point
  const char* begin_ = nullptr;
  WordBreak class_ = WordBreak::kOther;
  bool end_ = false;
};

/// The code points of a segment so far, without attached ones except for `last`.
struct Before {
  WordBreak one;                      // the newest
  WordBreak two = WordBreak::kOther;  // the one before it
  WordBreak last;                     // the newest, attached or not
  int64_t regional_indicators;        // how many end the segment

  explicit Before(WordBreak c)
      : one(c), last(c), regional_indicators(c == WordBreak::kRegionalIndicator ? 1 : 0) {}
  void add(WordBreak c) {
    last = c;
    if (is_attached(c)) return;
    two = one;
    one = c;
    regional_indicators = c == WordBreak::kRegionalIndicator ? regional_indicators + 1 : 0;
  }
};

/// Rules WB5 to WB7c: within words of letters. `next` is at the code point after the boundary.
bool joins_letters(const Before& before, const Cursor& next) {
  using enum WordBreak;
  const WordBreak c = next.current();
  if (is_letter(before.one)) {
    if (is_letter(c)) return true;
    if (is_mid_of_letters(c) && is_letter(next.following())) return true;
  }
  if (is_letter(before.two) && is_mid_of_letters(before.one) && is_letter(c)) return true;
  if (before.one == kHebrewLetter) {
    if (c == kSingleQuote) return true;
    if (c == kDoubleQuote && next.following() == kHebrewLetter) return true;
  }
  return before.two == kHebrewLetter && before.one == kDoubleQuote && c == kHebrewLetter;
}

/// Rules WB8 to WB12: within numbers, and between letters and numbers.
bool joins_numbers(const Before& before, const Cursor& next) {
  using enum WordBreak;
  const WordBreak c = next.current();
  if (c == kNumeric) {
    if (before.one == kNumeric || is_letter(before.one)) return true;
    return before.two == kNumeric && is_mid_of_numbers(before.one);
  }
  if (before.one != kNumeric) return false;
  return is_letter(c) || (is_mid_of_numbers(c) && next.following() == kNumeric);
}

/// Rules WB13 to WB16: Katakana, underscores and pairs of regional indicators.
bool joins_others(const Before& before, WordBreak c) {
  using enum WordBreak;
  const auto connects = [](WordBreak of) {
    return is_letter(of) || of == kNumeric || of == kKatakana || of == kExtendNumLet;
  };
  if (c == kKatakana && before.one == kKatakana) return true;
  if (c == kExtendNumLet && connects(before.one)) return true;
  if (before.one == kExtendNumLet && connects(c)) return true;
  return c == kRegionalIndicator && before.regional_indicators % 2 == 1;
}

/// Returns whether the code point at `next` continues the segment.
bool continues(const Before& before, const Cursor& next) {
  using enum WordBreak;
  const WordBreak c = next.current();
  if (c == kLetter && before.one == kLetter) return true;      // the most frequent case, by WB5
  if (before.last == kNewline || c == kNewline) return false;  // WB3a, WB3b
  if (is_attached(c)) return true;
  if (before.last == kZeroWidthJoiner && (c == kPictograph || c == kPictographicLetter)) {
    return true;  // WB3c
  }
  return joins_letters(before, next) || joins_numbers(before, next) || joins_others(before, c);
}

}  // namespace

WordBreak word_break_of(char32_t c) {
  static const std::vector<WordBreak> kTable = tabulate();
  return c < kTabulated ? kTable[c] : search_class(c);
}

void visit_word_segments(std::string_view text,
                         const std::function<bool(std::string_view segment)>& visit) {
  Cursor cursor(text);
  while (!cursor.at_end()) {
    const char* begin = cursor.position();
    Before before(cursor.current());
    bool word = makes_word(before.one);
    for (cursor.advance(); !cursor.at_end() && continues(before, cursor); cursor.advance()) {
      word = word || makes_word(cursor.current());
      before.add(cursor.current());
    }
    if (!word) continue;
    const std::string_view segment(begin, static_cast<size_t>(cursor.position() - begin));
    if (!visit(segment)) return;
  }
}

std::string word_of(std::string_view segment) {
  constexpr char32_t kApostrophe = 0x2019;
  constexpr char32_t kTextVariation = 0xfe0e, kEmojiVariation = 0xfe0f;
  std::string word;
  word.reserve(segment.size());
  while (!segment.empty()) {
    if (const char byte = segment.front(); static_cast<unsigned char>(byte) < 0x80) {
      word += static_cast<char>(lower_case(static_cast<char32_t>(byte)));
      segment.remove_prefix(1);
      continue;
    }
    char32_t c = take_code_point(segment);
    if (c == kTextVariation || c == kEmojiVariation) continue;
    if (word_break_of(c) == WordBreak::kFormat) continue;
    if (c == kApostrophe) c = '\'';
    append_utf8(word, lower_case(c));
  }
  return is_quickly_nfc(word) ? word : nfc(word);
}

}  // namespace trainyard
