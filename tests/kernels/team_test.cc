// Tests of the thread team: each index runs once, with any load, and exceptions reach the caller.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

TEST(PartOf, CoversEveryItemOnceAndStartsOnSteps) {
  for (const int64_t n : {0, 1, 15, 16, 17, 100, 1025}) {
    for (const int64_t parts : {1, 2, 3, 7}) {
      for (const int64_t step : {1, 16}) {
        int64_t next = 0;
        for (int64_t i = 0; i < parts; ++i) {
          const Range range = part_of(n, i, parts, step);
          EXPECT_EQ(range.begin, next) << n << " in " << parts;
          EXPECT_TRUE(range.begin % step == 0 || range.begin == n);
          next = range.end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

TEST(Team, RunsEachIndexOnceAndWaitsForAll) {
  for (const int size : {1, 2, 5}) {
    Team team(size);
    EXPECT_EQ(team.size(), size);
    std::vector<int> calls(static_cast<size_t>(size), 0);
    for (int round = 0; round < 2000; ++round) {
      const int parts = 1 + round % size;
      team.run(parts, [&](int i) { ++calls[static_cast<size_t>(i)]; });
      for (int i = 0; i < parts; ++i) ASSERT_EQ(calls[static_cast<size_t>(i)], 1) << round;
      std::fill(calls.begin(), calls.end(), 0);
    }
  }
}

// Sleeping workers must wake: a lost notification would hang here.
TEST(Team, WakesSleepers) {
  Team team(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<int> seen(3, 0);
    team.run(3, [&](int i) { seen[static_cast<size_t>(i)] = 1; });
    EXPECT_EQ(seen, std::vector<int>({1, 1, 1}));
  }
}

// A caller that must wait long also sleeps, and wakes when the slow worker is done.
TEST(Team, WaitsForASlowWorker) {
  Team team(2);
  bool done = false;
  team.run(2, [&](int i) {
    if (i == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  EXPECT_TRUE(done);
}

// Workers finish just when the caller changes from polling to sleeping; the notification must not
// be lost in between.
TEST(Team, WakesACallerThatIsAboutToSleep) {
  Team team(2);
  int rounds = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto busy = std::chrono::nanoseconds(50'000 + round * 37 % 40'000);
    team.run(2, [&](int i) {
      if (i == 0) return;
      const auto end = std::chrono::steady_clock::now() + busy;
      while (std::chrono::steady_clock::now() < end) {
      }
      ++rounds;
    });
  }
  EXPECT_EQ(rounds, 3000);
}

std::atomic<bool> is_held{false}, is_released{false};

/// Keeps the thread that it interrupts, as another process that has its core does.
void hold(int /*signal*/) {
  is_held = true;
  while (!is_released) std::this_thread::yield();
}

TEST(Team, TheCallerComputesForAThreadThatGetsNoCore) {
  Team team(2);
  std::atomic<pthread_t> other{};
  std::atomic<bool> has_begun{false};
  team.run(2, [&](int i) {  // the caller waits, so that the other thread computes its part itself
    if (i == 0) {
      while (!has_begun) std::this_thread::yield();
    } else {
      other = pthread_self();
      has_begun = true;
    }
  });
  ASSERT_FALSE(pthread_equal(other, pthread_self()));
  std::signal(SIGUSR1, hold);
  ASSERT_EQ(pthread_kill(other, SIGUSR1), 0);
  while (!is_held) std::this_thread::yield();
  int calls[2] = {0, 0};
  for (int round = 0; round < 100; ++round) {
    team.run(2, [&](int i) { ++calls[i]; });
  }
  EXPECT_EQ(calls[0], 100);
  EXPECT_EQ(calls[1], 100);
  is_released = true;
  int after[2] = {0, 0};
  for (int round = 0; round < 2000; ++round) team.run(2, [&](int i) { ++after[i]; });
  EXPECT_EQ(after[0], 2000);
  EXPECT_EQ(after[1], 2000) << "the thread computes a part of an earlier call, or leaves one out";
}

TEST(Team, RunsEachChunkOnce) {
  for (const int size : {1, 2, 5}) {
    Team team(size);
    for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(chunks));
      team.run_chunks(chunks, [&](int64_t chunk) { ++hits[static_cast<size_t>(chunk)]; });
      for (const std::atomic<int>& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(Team, RethrowsAThreadsException) {
  Team team(3);
  for (const int thrower : {0, 1, 2}) {
    const auto run = [&] {
      team.run(3, [&](int i) {
        if (i == thrower) throw std::runtime_error("fault " + std::to_string(i));
      });
    };
    EXPECT_THROW(run(), std::runtime_error) << thrower;
  }
  int calls = 0;
  team.run(1, [&](int) { ++calls; });  // the team still works
  EXPECT_EQ(calls, 1);
}

TEST(Team, ParallelForCoversTheRange) {
  Team team(3);
  for (const int64_t n : {0, 1, 2, 3, 10, 1000}) {
    std::vector<int> hits(static_cast<size_t>(n), 0);
    team.parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(n), 1));
  }
}

}  // namespace
}  // namespace trainyard::kernels::cpu
