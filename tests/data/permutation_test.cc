// The tests fail if a shuffle repeats or loses rows, depends on anything but its key, or differs
// from its definition (sorting by Philox keys).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "src/base/philox.h"

namespace trainyard {
namespace {

TEST(Permutation, IsSortedByItsKeys) {
  for (const int64_t n : {0, 1, 2, 3, 7, 64, 1001}) {
    const uint64_t seed = 0x123456789abcdef0u;
    const uint32_t stream = stream_of("shuffle");
    std::vector<int64_t> expected(static_cast<size_t>(n));
    std::iota(expected.begin(), expected.end(), 0);
    const auto key = [&](int64_t i) {
      const auto u = static_cast<uint64_t>(i);
      return uint64_t{math::philox_u32(seed, stream, 5, 2 * u)} << 32 |
             math::philox_u32(seed, stream, 5, 2 * u + 1);
    };
    std::ranges::sort(expected, {}, [&](int64_t i) { return std::pair(key(i), i); });
    EXPECT_EQ(permutation(n, seed, stream, 5), expected) << n;
  }
}

TEST(Permutation, VisitsEachIndexOnceAndDependsOnItsKeyAlone) {
  const auto a = permutation(60000, 7, 1, 0);
  auto sorted = a;
  std::ranges::sort(sorted);
  for (int64_t i = 0; i < 60000; ++i) ASSERT_EQ(sorted[static_cast<size_t>(i)], i);
  EXPECT_EQ(a, permutation(60000, 7, 1, 0));
  EXPECT_NE(a, permutation(60000, 8, 1, 0));
  EXPECT_NE(a, permutation(60000, 7, 2, 0));
  EXPECT_NE(a, permutation(60000, 7, 1, 1));
}

TEST(Permutation, IsUnbiased) {
  // Each of the 24 orders of 4 elements: of 24,000 draws, 1,000 each are expected, with a standard
  // deviation of about 31.
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t step = 0; step < 24000; ++step) ++counts[permutation(4, 3, 9, step)];
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 160);
}

TEST(Permutation, FirstElementsAreFixedForever) {
  // A checkpoint must resume with the same rows in all future builds.
  EXPECT_EQ(permutation(8, 42, stream_of("shuffle"), 0),
            (std::vector<int64_t>{3, 5, 1, 2, 6, 4, 0, 7}));
}

}  // namespace
}  // namespace trainyard
