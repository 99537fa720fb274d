// Fails if a duration is parsed as another one, or is shown in a form that cannot be parsed.
#include "src/base/duration.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Duration, HasOneUnit) {
  EXPECT_EQ(parse_duration("90d"), 90 * 24 * 3600);
  EXPECT_EQ(parse_duration("12h"), 12 * 3600);
  EXPECT_EQ(parse_duration("30m"), 30 * 60);
  EXPECT_EQ(parse_duration("45s"), 45);
  EXPECT_EQ(parse_duration("0"), 0);
  EXPECT_EQ(parse_duration("1000000000d"), int64_t{1'000'000'000} * 24 * 3600);
  for (const char* bad : {"", "5", "d", "-1d", "1.5h", "1d12h", "1 d", "3w", "1000000001s",
                          "99999999999999999999s"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

TEST(Duration, IsShownInTheLargestUnitThatFits) {
  for (const char* text : {"90d", "36h", "90m", "61s", "0"}) {
    EXPECT_EQ(duration_text(*parse_duration(text)), text);
  }
  EXPECT_EQ(duration_text(48 * 3600), "2d");
}

}  // namespace
}  // namespace trainyard
