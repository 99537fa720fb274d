// Fails on a wrong polynomial, bit order or tail handling, or if the two implementations disagree.
#include "src/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trainyard {
namespace {

TEST(Crc32c, MatchesThePublishedCheckValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
}

TEST(Crc32c, BothFormsAgreeAtEveryLengthAndCut) {
  std::vector<std::byte> bytes(67);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (size_t n = 0; n <= bytes.size(); ++n) {
    const std::span<const std::byte> whole(bytes.data(), n);
    const uint32_t expected = crc32c_portable(whole);
    EXPECT_EQ(crc32c(whole), expected) << n;
    EXPECT_EQ(crc32c(whole.subspan(n / 3), crc32c(whole.first(n / 3))), expected) << n;
  }
}

// Long content is processed in three lanes, whose registers are then combined.
TEST(Crc32c, BothFormsAgreeAroundTheLanesOfLongContent) {
  std::vector<std::byte> bytes(4 * 3072 + 9);
  uint32_t random = 1;
  for (std::byte& b : bytes)
    b = static_cast<std::byte>((random = random * 1664525 + 1013904223) >> 24);
  for (const size_t n : {3071u, 3072u, 3073u, 6143u, 6144u, 9221u, 12297u}) {
    const std::span<const std::byte> whole(bytes.data(), n);
    const uint32_t expected = crc32c_portable(whole);
    EXPECT_EQ(crc32c(whole), expected) << n;
    EXPECT_EQ(crc32c(whole.subspan(5), crc32c(whole.first(5))), expected) << n;
  }
}

}  // namespace
}  // namespace trainyard
