// Fails if a sentence of a script without blanks counts as one word, which would make it a name.
#include "src/data/text/word_count.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(WordCount, CountsWhatStandsBetweenBlanks) {
  EXPECT_EQ(count_words(""), 0);
  EXPECT_EQ(count_words("  one two,\tthree\nfour - "), 5) << "a lone dash counts, as any mark";
  EXPECT_EQ(count_words("\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440"), 2);
  EXPECT_EQ(count_words("\xff\xfe bytes"), 2);
}

TEST(WordCount, TakesTwoCharactersAsAWordWhereThereAreNoBlanks) {
  EXPECT_EQ(count_words("\u5317\u4eac"), 1);  // Beijing
  EXPECT_EQ(count_words("\u6211\u5f88\u559c\u6b22\u5b83\u3002"),
            3);  // five characters, a full stop
  EXPECT_EQ(count_words("\u597d\uff0c\u5f88\u597d"), 2) << "the comma divides one and two";
  EXPECT_EQ(count_words("iPhone\u624b\u673a\u5f88\u597d ok"), 4)
      << "a word, four characters, a word";
  EXPECT_EQ(count_words("\u0e2d\u0e32\u0e2b\u0e32\u0e23\u0e14\u0e35"), 3)
      << "Thai: six letters, and a vowel sign above the last one";
}

}  // namespace
}  // namespace trainyard
