// Catches: a process that does not end, or loses its exit status or output, because of a call that
// never returns; exit handlers that are skipped without such a call; a wait without a limit.
#include "src/base/detached_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>

#include "tests/support/patience.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

TEST(DetachedCall, IsWaitedForUpToALimit) {
  const auto release = std::make_shared<std::latch>(1);
  const DetachedCall call([release] { release->wait(); });
  EXPECT_FALSE(call.wait_until(Clock::now() + std::chrono::milliseconds(20)));
  release->count_down();
  EXPECT_TRUE(call.wait_until(Clock::now() + patience()));
}

TEST(DetachedCall, OutlivesItsObject) {
  const auto release = std::make_shared<std::latch>(1), done = std::make_shared<std::latch>(1);
  {
    const DetachedCall call([release, done] {
      release->wait();
      done->count_down();
    });
  }
  release->count_down();
  EXPECT_TRUE(eventually([&] { return done->try_wait(); }));
}

void handler_of_a_library() { std::_Exit(9); }

/// Exits with status 7, or 9 if exit handlers are called. Its output is buffered, as in a pipe.
[[noreturn]] void exit_with_a_handler(const std::function<void()>& before) {
  std::atexit(handler_of_a_library);
  before();
  std::setvbuf(stderr, nullptr, _IOFBF, BUFSIZ);
  std::fputs("said before", stderr);
  std::exit(7);
}

TEST(DetachedCallDeathTest, ExitDoesNotWaitForIt) {
  EXPECT_EXIT(exit_with_a_handler([] { const DetachedCall call([] { std::latch(1).wait(); }); }),
              ::testing::ExitedWithCode(7), "said before");
}

TEST(DetachedCallDeathTest, ExitIsAsUsualAfterItsEnd) {
  EXPECT_EXIT(exit_with_a_handler([] {
                const DetachedCall call([] {});
                if (!call.wait_until(Clock::now() + patience())) std::_Exit(1);
              }),
              ::testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace trainyard
