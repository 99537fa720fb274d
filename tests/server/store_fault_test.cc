// F17, F19, F23: the disk is full, a write or sync fails, another program locks the file.
// Acknowledged changes stay, refusals have the right reason, and operations that are still possible
// work.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "server/store/sqlite.h"
#include "server/store/store_files.h"
#include "server/store/wait_for.h"
#include "server/store/writer.h"
#include "tests/server/fault_vfs.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class StoreFault : public ::testing::Test {
 protected:
  StoreFault() { options.vfs = vfs.name(); }

  FaultVfs vfs{"fault"};
  TemporaryDirectory directory;
  StoreOptions options = small_options(directory.path());
};

TEST_F(StoreFault, F17FullDiskRefusesSubmitsButReadsAndCancelsGoOn) {
  options.reserve_bytes = 64 << 10;
  std::vector<bool> changes;  // on the writer's thread, whose answers this test waits for
  options.disk_full = [&](bool full) { changes.push_back(full); };
  const std::unique_ptr<Store> store = open_or_die(options);
  const fs::path reserve = reserve_path(directory.path());
  ASSERT_EQ(fs::file_size(reserve), 64u << 10);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(store->jobs().submit(new_job("job-" + std::to_string(i))).ok());
  const Job running = run_job(*store, new_job("running"));

  vfs.set_hook([&](const FileOperation& op) {  // the disk is full until the reserve is freed
    return op.kind == FileOperation::Kind::kWrite && fs::exists(reserve) ? SQLITE_FULL : SQLITE_OK;
  });
  for (int i = 0; i < 3; ++i) {
    const Result<Job> refused = store->jobs().submit(new_job("late-" + std::to_string(i)));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(refused.error().reason, "STORAGE_FULL");
    EXPECT_TRUE(store->jobs().find("default", "job-0").ok());
    EXPECT_EQ(store->jobs().request_cancel("default", "job-" + std::to_string(i)).value().state,
              JobState::kCancelled);
  }
  AttemptUpdate end = update_of(running, 2);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"d", 1, 1, {}};
  EXPECT_EQ(answer_of(store->jobs(), &JobStore::update_attempt, end).value().state,
            JobState::kSucceeded);
  EXPECT_TRUE(store->health().ok());
  EXPECT_TRUE(store->is_full());

  vfs.set_hook(nullptr);  // space was freed: no restart is needed
  EXPECT_TRUE(store->jobs().submit(new_job("late-0")).ok());
  EXPECT_FALSE(store->is_full());
  ASSERT_GE(changes.size(), 2u);
  EXPECT_TRUE(changes.front()) << "reported at once";
  EXPECT_FALSE(changes.back()) << "and when it is over";
  EXPECT_TRUE(fs::exists(reserve));
}

// Lets the n-th operation of a submit fail, for n = 1, 2, ... until a submit succeeds.
void fail_each(FaultVfs& vfs, const StoreOptions& base, int code, FileOperation::Kind kind,
               const char* reason, bool heals) {
  bool clean = false;
  int n = 1;
  for (; !clean && n < 200; ++n) {
    TemporaryDirectory directory;
    StoreOptions options = base;
    options.state_dir = directory.path();
    std::unique_ptr<Store> store = open_or_die(options);
    ASSERT_TRUE(store->jobs().submit(new_job("before")).ok());
    int count = 0;
    vfs.set_hook([&](const FileOperation& op) {
      return op.kind == kind && op.file == "trainyard.db-wal" && ++count == n ? code : SQLITE_OK;
    });
    const Result<Job> tried = store->jobs().submit(new_job("tried"));
    clean = count < n;
    vfs.set_hook(nullptr);
    EXPECT_EQ(tried.ok(), clean) << n;
    if (!tried.ok()) {
      EXPECT_EQ(tried.error().reason, reason) << n;
    }
    EXPECT_TRUE(store->jobs().find("default", "before").ok()) << n;
    const Result<Job> after = store->jobs().submit(new_job("after"));
    EXPECT_EQ(after.ok(), clean || heals) << n;
    EXPECT_EQ(store->health().ok(), clean || heals) << n;
    store.reset();
    store = open_or_die(small_options(directory.path()));  // restart with a disk that works
    EXPECT_TRUE(store->jobs().find("default", "before").ok()) << n;
    if (tried.ok()) {
      EXPECT_TRUE(store->jobs().find("default", "tried").ok()) << n;
    }
    if (after.ok()) {
      EXPECT_TRUE(store->jobs().find("default", "after").ok()) << n;
    }
    EXPECT_TRUE(store->jobs().submit(new_job("again")).ok()) << n;
  }
  EXPECT_TRUE(clean);
  EXPECT_GT(n, 2);  // at least one operation failed
}

TEST_F(StoreFault, F17EachWriteThatFindsTheDiskFullIsRefusedAndForgotten) {
  fail_each(vfs, options, SQLITE_FULL, FileOperation::Kind::kWrite, "STORAGE_FULL",
            /*heals=*/true);
}

// On a full disk, the remaining dependent jobs are settled with the next change instead of in an
// endless retry.
TEST_F(StoreFault, F17WaitingJobsAreNotifiedOnceThereIsRoom) {
  options.checkpoint_pages = 1'000'000;  // so that each sync belongs to a commit
  const auto store = open_or_die(options);
  const Job hub = run_job(*store, new_job("hub"));
  for (int i = 0; i < 1'000; ++i) {
    NewJob waiter = new_job();
    waiter.after = {{"hub", true}};
    ASSERT_TRUE(store->jobs().submit(waiter).ok());
  }
  const auto count_waiting = [&] {
    int64_t waiting = 0;
    const auto count = [&](const JobBrief& job) { waiting += job.waits_for > 0 ? 1 : 0; };
    EXPECT_TRUE(store->jobs().read_unfinished(count).ok());
    return waiting;
  };
  std::atomic<bool> full = true;
  std::atomic<int> commits = 0;
  std::atomic<int> refused = 0;
  vfs.set_hook([&](const FileOperation& operation) {
    if (operation.kind == FileOperation::Kind::kSync) ++commits;
    const bool writes = operation.kind == FileOperation::Kind::kWrite;
    if (!full || !writes || commits < 3) return SQLITE_OK;
    ++refused;
    return SQLITE_FULL;
  });
  AttemptUpdate ended = update_of(hub);
  ended.move = move_to(JobState::kFailed);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, ended).ok());
  ASSERT_TRUE(eventually([&] { return refused > 0; }));
  EXPECT_GT(count_waiting(), 0);
  full = false;
  ASSERT_TRUE(store->jobs().submit(new_job()).ok());
  EXPECT_TRUE(eventually([&] { return count_waiting() == 0; })) << count_waiting();
  EXPECT_TRUE(store->health().ok());
  EXPECT_LT(refused, 20) << "it did not try again and again";
}

TEST_F(StoreFault, F19EachFailingWriteEndsTrustInTheConnection) {
  fail_each(vfs, options, SQLITE_IOERR_WRITE, FileOperation::Kind::kWrite, "STORE_FAILED",
            /*heals=*/false);
}

TEST_F(StoreFault, F19FailingSyncEndsTrustInTheConnection) {
  fail_each(vfs, options, SQLITE_IOERR_FSYNC, FileOperation::Kind::kSync, "STORE_FAILED",
            /*heals=*/false);
}

TEST_F(StoreFault, F23LockedStoreIsABoundedWait) {
  options.busy_timeout_ms = 50;
  const std::unique_ptr<Store> store = open_or_die(options);
  ASSERT_TRUE(store->jobs().submit(new_job("before")).ok());
  {
    Connection other(store_path(directory.path()), Connection::Mode::kReadWrite, 50);
    other.execute("BEGIN IMMEDIATE");
    const Result<Job> refused = store->jobs().submit(new_job("during"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(refused.error().reason, "STORE_BUSY");
    EXPECT_TRUE(store->jobs().find("default", "before").ok());
    other.execute("ROLLBACK");
  }
  EXPECT_TRUE(store->jobs().submit(new_job("after")).ok());
  EXPECT_TRUE(store->health().ok());
}

TEST_F(StoreFault, F23TheQueueOfChangesIsBoundedAndEveryChangeIsAnswered) {
  options.busy_timeout_ms = 300;
  options.queued_jobs_max = 1 << 20;
  const std::unique_ptr<Store> store = open_or_die(options);
  Connection other(store_path(directory.path()), Connection::Mode::kReadWrite, 50);
  other.execute("BEGIN IMMEDIATE");
  const int asked = static_cast<int>(kCommandsMax) + 100;
  std::atomic<int> answered = 0;
  std::atomic<int> busy = 0;
  std::latch all(asked);
  for (int i = 0; i < asked; ++i)
    store->jobs().submit(new_job(), [&](Result<Job> result) {
      ++answered;
      if (!result.ok() && result.error().reason == "STORE_BUSY") ++busy;
      all.count_down();
    });
  other.execute("ROLLBACK");
  all.wait();
  EXPECT_EQ(answered, asked);
  EXPECT_GE(busy, 100);
  EXPECT_EQ(store->jobs().count().value().queued, asked - busy);
}

TEST_F(StoreFault, WaitingForTheStoreOnItsAnsweringThreadIsAFault) {
  const std::unique_ptr<Store> store = open_or_die(options);
  std::atomic<bool> thrown = false;
  std::latch done(1);
  store->jobs().submit(new_job(), [&](Result<Job>) {
    try {
      (void)store->jobs().submit(new_job());
    } catch (const InvariantError&) {
      thrown = true;
    }
    done.count_down();
  });
  done.wait();
  EXPECT_TRUE(thrown);
}

}  // namespace
}  // namespace trainyard::server
