// Tests of a worker's progress report (F11): the idle time grows only while progress is expected
// but absent.
#include <gtest/gtest.h>

#include "server/worker/pace.h"

namespace trainyard {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kIntervalMs = 5'000;

TEST(WorkerPace, IdleTimeGrowsWithEachReadAndProgressResetsIt) {
  Pace pace;
  pace.begin(0);
  EXPECT_EQ(pace.read(100 * kSecond, kIntervalMs).idle_ms, 0) << "from the first look on";
  EXPECT_EQ(pace.read(105 * kSecond, kIntervalMs).idle_ms, 5'000);
  EXPECT_EQ(pace.read(110 * kSecond, kIntervalMs).idle_ms, 10'000);
  pace.sign(111 * kSecond);
  EXPECT_EQ(pace.read(115 * kSecond, kIntervalMs).idle_ms, 0);
  EXPECT_EQ(pace.read(120 * kSecond, kIntervalMs).idle_ms, 5'000);
}

TEST(WorkerPace, TimeWhileTheProcessWasPausedIsNotIdle) {
  Pace pace;
  pace.begin(0);
  (void)pace.read(0, kIntervalMs);
  EXPECT_EQ(pace.read(3600 * kSecond, kIntervalMs).idle_ms, 10'000)
      << "a container that was paused for an hour";
}

TEST(WorkerPace, NothingIsExpectedBeforeTheStartAndAfterTheEnd) {
  Pace pace;
  (void)pace.read(0, kIntervalMs);
  EXPECT_EQ(pace.read(5 * kSecond, kIntervalMs).idle_ms, 0);
  pace.begin(0);
  EXPECT_EQ(pace.read(10 * kSecond, kIntervalMs).idle_ms, 5'000);
  pace.end();
  EXPECT_EQ(pace.read(15 * kSecond, kIntervalMs).idle_ms, 0);
}

TEST(WorkerPace, UsualTimeIsAGuessAndThenTheMedianOfTheNewest) {
  Pace pace;
  pace.begin(70'000);
  EXPECT_EQ(pace.read(0, kIntervalMs).usual_ms, 70'000);
  pace.sign(1 * kSecond);
  EXPECT_EQ(pace.read(1 * kSecond, kIntervalMs).usual_ms, 70'000) << "one sign is no interval";
  pace.sign(61 * kSecond);  // the first step, which includes the preparation
  EXPECT_EQ(pace.read(61 * kSecond, kIntervalMs).usual_ms, 60'000);
  int64_t now = 61 * kSecond;
  for (int i = 0; i < 4; ++i) pace.sign(now += 2 * kSecond);
  EXPECT_EQ(pace.read(now, kIntervalMs).usual_ms, 2'000);
  for (int i = 0; i < 40; ++i) pace.sign(now += 7 * kSecond);
  EXPECT_EQ(pace.read(now, kIntervalMs).usual_ms, 7'000) << "the older ones are gone";
}

}  // namespace
}  // namespace trainyard
