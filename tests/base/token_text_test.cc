// Tests of the form of access tokens: every single mistake of a person who copies one is noticed.
#include "src/base/token_text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace trainyard {
namespace {

TEST(TokenText, HasAChecksum) {
  const std::string text = token_text("0123456789abcdefghijklmnopqrstuvwxyzABCDEF");
  EXPECT_EQ(text.size(), 51u);
  EXPECT_TRUE(is_token_text(text)) << text;
}

TEST(TokenText, NoticesWrongExchangedAndMissingCharacters) {
  const std::string good = token_text("pQ7rT2vX9zB4dF6hJ8kM1nP3qS5tV0wY7aC2eG4iK6");
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : std::string("0aZ_ ")) {
      std::string bad = good;
      bad[i] = c;
      EXPECT_EQ(is_token_text(bad), bad == good) << bad;
    }
    if (i + 1 < good.size()) {
      std::string bad = good;
      std::swap(bad[i], bad[i + 1]);
      EXPECT_EQ(is_token_text(bad), bad == good) << bad;
    }
    EXPECT_FALSE(is_token_text(good.substr(0, i) + good.substr(i + 1)));
    EXPECT_FALSE(is_token_text(good.substr(0, i)));
  }
  EXPECT_FALSE(is_token_text(good + "0"));
  EXPECT_FALSE(is_token_text(""));
}

}  // namespace
}  // namespace trainyard
