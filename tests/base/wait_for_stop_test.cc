#include "src/base/wait_for_stop.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace trainyard {
namespace {

using Seconds = std::chrono::duration<double>;

double seconds_of(const std::stop_token& stop, Seconds time_max) {
  const auto begin = std::chrono::steady_clock::now();
  wait_for_stop(stop, time_max);
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

TEST(WaitForStop, WaitsForTheGivenTime) {
  EXPECT_GE(seconds_of(std::stop_token(), Seconds(0.02)), 0.02);
}

TEST(WaitForStop, EndsOnRequest) {
  std::stop_source source;
  source.request_stop();
  EXPECT_LT(seconds_of(source.get_token(), Seconds(60)), 30);
}

TEST(WaitForStop, AcceptsTimesBeyondTheClocksRange) {
  for (const double forever : {1e300, std::numeric_limits<double>::infinity()}) {
    std::stop_source source;
    const std::jthread asks([&] {
      std::this_thread::sleep_for(Seconds(0.05));
      source.request_stop();
    });
    EXPECT_GE(seconds_of(source.get_token(), Seconds(forever)), 0.04);
  }
}

}  // namespace
}  // namespace trainyard
