// Tests of a host's dataset cache: what is downloaded once, what is evicted and what is kept.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "server/worker/node_cache.h"
#include "server/worker/remote_run.h"
#include "src/base/sha256.h"
#include "tests/server/store_support.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using server::TemporaryDirectory;

/// Returns a pull function that writes a dataset of `bytes` bytes and counts its calls in `count`.
NodeCache::Pull filled(int64_t bytes, int* count = nullptr) {
  return [=](const fs::path& folder, const NodeCache::MakeRoom& make_room) -> Status {
    make_room(bytes);
    std::ofstream(folder / "rows") << std::string(static_cast<size_t>(bytes), 'x');
    if (count != nullptr) ++*count;
    return {};
  };
}

/// Sets the last use of a dataset `hours` hours back.
void age(const fs::path& root, const std::string& digest, int hours) {
  const fs::path lock = root / "datasets" / (digest + ".lock");
  fs::last_write_time(lock, fs::last_write_time(lock) - std::chrono::hours(hours));
}

TEST(RemoteCache, ADatasetIsDownloadedOnce) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 1000);
  const std::string digest = sha256_hex("a");
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    const auto locked = cache.lock_dataset(digest, filled(10, &count), {});
    ASSERT_TRUE(locked.ok()) << locked.error().message;
    EXPECT_EQ(fs::file_size(locked->folder / "rows"), 10u);
  }
  EXPECT_EQ(count, 1);
}

TEST(RemoteCache, APartialDatasetIsNotUsed) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 1000);
  const std::string digest = sha256_hex("a");
  const auto fails = [](const fs::path& folder, const NodeCache::MakeRoom&) -> Status {
    std::ofstream(folder / "half") << "x";
    return make_error(ErrorCode::kUnavailable, "CONNECTION_LOST", "cut");
  };
  EXPECT_EQ(cache.lock_dataset(digest, fails, {}).error().reason, "CONNECTION_LOST");
  EXPECT_FALSE(fs::exists(root.path() / "datasets" / digest));
  bool goes_on = false;
  const auto locked =
      cache.lock_dataset(digest,
                         [&](const fs::path& folder, const NodeCache::MakeRoom&) -> Status {
                           goes_on = fs::exists(folder / "half");
                           return {};
                         },
                         {});
  EXPECT_TRUE(locked.ok());
  EXPECT_TRUE(goes_on);
}

TEST(RemoteCache, TwoWorkersDoNotDownloadTheSame) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 1000);
  const std::string digest = sha256_hex("a");
  std::atomic<int> count{0};
  const auto slowly = [&](const fs::path& folder, const NodeCache::MakeRoom&) -> Status {
    ++count;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::ofstream(folder / "rows") << "x";
    return {};
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(cache.lock_dataset(digest, slowly, {}).ok()); });
  }
  threads.clear();
  EXPECT_EQ(count, 1);
}

TEST(RemoteCache, AWaitingWorkerCanBeStopped) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 1000);
  const std::string digest = sha256_hex("a");
  std::stop_source stop;
  const auto waits = [&](const fs::path&, const NodeCache::MakeRoom&) -> Status {
    stop.request_stop();
    const auto other = cache.lock_dataset(digest, filled(1), stop.get_token());
    EXPECT_EQ(other.error().reason, "STOPPED");
    return make_error(ErrorCode::kUnavailable, "TEST", "over");
  };
  EXPECT_EQ(cache.lock_dataset(digest, waits, {}).error().reason, "TEST");
}

TEST(RemoteCache, TheLeastRecentlyUsedIsRemovedFirst) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 250);
  std::vector<std::string> digests;
  for (const char* name : {"a", "b"}) {
    digests.push_back(sha256_hex(name));
    ASSERT_TRUE(cache.lock_dataset(digests.back(), filled(100), {}).ok());
  }
  age(root.path(), digests[0], 1);
  age(root.path(), digests[1], 2);
  ASSERT_TRUE(cache.lock_dataset(sha256_hex("c"), filled(100), {}).ok());
  EXPECT_TRUE(fs::exists(root.path() / "datasets" / digests[0]));
  EXPECT_FALSE(fs::exists(root.path() / "datasets" / digests[1]));
}

TEST(RemoteCache, DatasetsInUseAreKept) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 150);
  const auto locked = cache.lock_dataset(sha256_hex("a"), filled(100), {});
  ASSERT_TRUE(locked.ok());
  age(root.path(), sha256_hex("a"), 5);
  ASSERT_TRUE(cache.lock_dataset(sha256_hex("b"), filled(100), {}).ok());
  EXPECT_TRUE(fs::exists(locked->folder / "rows"));
}

TEST(RemoteCache, FilesOfAKilledWorkerAreRemoved) {
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 150);
  fs::create_directories(root.path() / "work/killed-1/checkpoints");
  std::ofstream(root.path() / "work/killed-1.lock");
  {
    const auto alive = cache.make_work("alive-1");
    ASSERT_TRUE(alive.ok());
    EXPECT_FALSE(fs::exists(root.path() / "work/killed-1"));
    EXPECT_EQ(cache.make_work("alive-1").error().reason, "TASK_RUNNING");
    ASSERT_TRUE(cache.make_work("other-1").ok());
    EXPECT_TRUE(fs::exists(alive->path()));
  }
  EXPECT_TRUE(fs::is_empty(root.path() / "work"));
}

TEST(RemoteCache, NamesCannotLeaveTheFolder) {
  for (const char* name : {"", "..", "a/b", "a.b", "a b"}) EXPECT_FALSE(is_plain_name(name));
  EXPECT_TRUE(is_plain_name("0123abcDEF-12_"));
  const TemporaryDirectory root;
  const NodeCache cache(root.path(), 150);
  EXPECT_FALSE(cache.lock_dataset("../../x", filled(1), {}).ok());
}

TEST(RemoteCache, AWorkerStopsInTimeForItsCheckpoint) {
  EXPECT_EQ(stop_time_s(0, 1000, std::chrono::milliseconds(0)), 940);
  EXPECT_EQ(stop_time_s(0, 1000, std::chrono::seconds(25)), 915);
  // A tenth of a short remaining time is reserved: a fixed minute would use up a job of one minute.
  EXPECT_EQ(stop_time_s(940, 1000, std::chrono::milliseconds(0)), 994);
  EXPECT_EQ(stop_time_s(1000, 990, std::chrono::milliseconds(0)), 990);
}

}  // namespace
}  // namespace trainyard
