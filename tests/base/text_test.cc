// Fails if suggestions do not help, or if error text passes control bytes to a terminal.
#include "src/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace trainyard {
namespace {

TEST(NearestName, CorrectsTyposAndSuggestsNothingDistant) {
  const std::vector<std::string> names = {"learning_rate", "momentum", "type"};
  EXPECT_EQ(nearest_name("learningrate", names), "learning_rate");
  EXPECT_EQ(nearest_name("momentun", names), "momentum");
  EXPECT_EQ(nearest_name("batch", names), std::nullopt);
  const std::vector<std::string> shorts = {"who", "mlp", "adam", "cpu", "\u5730\u540d"};
  EXPECT_EQ(nearest_name("shoe", shorts), std::nullopt) << "half of its letters are others";
  EXPECT_EQ(nearest_name("how", shorts), std::nullopt);
  EXPECT_EQ(nearest_name("mpl", shorts), "mlp") << "neighbors are exchanged";
  EXPECT_EQ(nearest_name("adma", shorts), "adam");
  EXPECT_EQ(nearest_name("GPU", shorts), "cpu");
  EXPECT_EQ(nearest_name("\u59d3\u540d", shorts), std::nullopt)
      << "letters count, not the bytes that they share";
  EXPECT_EQ(nearest_name(std::string(10000, 'a'), names), std::nullopt);
}

TEST(QuotedValue, EscapesControlBytesAndCutsLongText) {
  EXPECT_EQ(quoted_value("a\x1b[31m\n"), "'a\\x1b[31m\\x0a'");
  EXPECT_EQ(quoted_value(std::string(100, 'x')), "'" + std::string(64, 'x') + "...'");
}

TEST(Utf8, AcceptsExactlyWellFormedText) {
  for (const char* good :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x82", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << quoted_value(good);
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xff", "a\xe9z"}) {
    EXPECT_FALSE(is_utf8(bad)) << quoted_value(bad);
  }
}

TEST(HumanBytes, UsesBinaryUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(int64_t{139} << 30), "139 GiB");
}

}  // namespace
}  // namespace trainyard
