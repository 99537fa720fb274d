// Fails if words are not those of Unicode's rules, or if equal words are written in two ways.
#include "src/data/text/word_break.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/base/text.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  visit_word_segments(text, [&](std::string_view segment) {
    found.push_back(word_of(segment));
    return true;
  });
  return found;
}

using Words = std::vector<std::string>;

/// Returns the parts of `text` between the marks.
std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, mark);) parts.push_back(part);
  return parts;
}

bool makes_word(char32_t c) {
  switch (word_break_of(c)) {
    case WordBreak::kLetter:
    case WordBreak::kHebrewLetter:
    case WordBreak::kPictographicLetter:
    case WordBreak::kNumeric:
    case WordBreak::kKatakana:
    case WordBreak::kAlone:
    case WordBreak::kPictograph:
    case WordBreak::kRegionalIndicator:
      return true;
    default:
      return false;
  }
}

TEST(WordBreaks, AreThoseOfUnicodesTest) {
  std::ifstream file(testing::source_path("tests/golden/word_breaks.txt"));
  int64_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++count;
    std::string text;
    Words expected;
    for (const std::string& part : split(line, '|')) {
      std::string segment;
      bool word = false;
      for (const std::string& hex : split(part, '+')) {
        const auto c = static_cast<char32_t>(std::stoul(hex, nullptr, 16));
        append_utf8(segment, c);
        word = word || makes_word(c);
      }
      text += segment;
      if (word) expected.push_back(segment);
    }
    Words found;
    visit_word_segments(text, [&](std::string_view segment) {
      found.emplace_back(segment);
      return true;
    });
    EXPECT_EQ(found, expected) << line;
  }
  EXPECT_EQ(count, 1823);
}

TEST(WordBreaks, PunctuationOfAllScriptsSeparates) {
  EXPECT_EQ(words("\u201cgood\u201d \u2026film\u2014really\u2026 \u00abbon\u00bb \u201eja\u201c"),
            (Words{"good", "film", "really", "bon", "ja"}));
  EXPECT_EQ(words("\u597d\uff01 OK\uff0cyes\u3002"), (Words{"\u597d", "ok", "yes"}));
  EXPECT_EQ(words("3.14 1,000 U.S.A. e.g. a_b"), (Words{"3.14", "1,000", "u.s.a", "e.g", "a_b"}));
}

TEST(WordBreaks, EqualWordsAreWrittenAlike) {
  EXPECT_EQ(words("Don't don\u2019t"), (Words{"don't", "don't"}));
  EXPECT_EQ(words("CAF\u00c9 cafe\u0301 \u0141\u00d3D\u0179"),
            (Words{"caf\u00e9", "caf\u00e9", "\u0142\u00f3d\u017a"}));
  EXPECT_EQ(words("co\u00adop \u2764\ufe0f \u2764"), (Words{"coop", "\u2764", "\u2764"}));
}

TEST(WordBreaks, CharactersOfScriptsWithoutSpacesAreWords) {
  EXPECT_EQ(words("\u4f60\u597d"), (Words{"\u4f60", "\u597d"}));
  // A vowel sign belongs to its consonant.
  EXPECT_EQ(words("\u0e2a\u0e27\u0e31\u0e2a"), (Words{"\u0e2a", "\u0e27\u0e31", "\u0e2a"}));
  EXPECT_EQ(words("\u30ab\u30bf \uc548\ub155"), (Words{"\u30ab\u30bf", "\uc548\ub155"}));
}

TEST(WordBreaks, VisitingEndsWhenAsked) {
  int64_t count = 0;
  visit_word_segments("a b c", [&](std::string_view) { return ++count < 2; });
  EXPECT_EQ(count, 2);
  visit_word_segments("", [](std::string_view) -> bool { throw std::logic_error("no word"); });
}

}  // namespace
}  // namespace trainyard
