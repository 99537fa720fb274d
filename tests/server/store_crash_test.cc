// F01, F03, F06, F20: the process ends, or the power fails, before any single write or sync of the
// store. Acknowledged changes must survive, no change may be half done, and a retry must not create
// a second job.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <random>
#include <set>

#include "server/store/schema_copy.h"
#include "server/store/sqlite.h"
#include "server/store/wait_for.h"
#include "tests/server/fault_vfs.h"
#include "tests/server/older_store.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

// The thread sanitizer does not support threads in a forked child.
#if defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_FORKS_DO_NOT_WORK() GTEST_SKIP() << "no forks under the thread sanitizer"
#else
#define SKIP_WHERE_FORKS_DO_NOT_WORK() static_cast<void>(0)
#endif

constexpr int kJobs = 4;
std::string job_id(int i) { return "job-" + std::to_string(i); }

NewJob numbered_job(int i) {
  NewJob job = new_job(job_id(i));
  job.request_id = "request-" + std::to_string(i);
  job.request_digest = "digest";
  return job;
}

// Does what a small daemon would do: submits jobs, runs one to its end and cancels one. Calls
// `acknowledged` after each acknowledged step.
void work(Store& store, const std::function<void(char)>& acknowledged) {
  for (int i = 0; i < kJobs; ++i)
    if (store.jobs().submit(numbered_job(i)).ok()) acknowledged(static_cast<char>('0' + i));
  Job job = store.jobs().find("default", job_id(0)).value();
  job = store.jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate started = update_of(job, 1);
  started.move = move_to(JobState::kRunning);
  if (answer_of(store.jobs(), &JobStore::update_attempt, started).ok()) acknowledged('R');
  for (int i = 0; i < 5; ++i) {
    AttemptUpdate log = update_of(job, i + 2);
    log.events.push_back(log_event(std::string(3000, 'x')));
    if (!answer_of(store.jobs(), &JobStore::update_attempt, log).ok()) return;
  }
  AttemptUpdate end = update_of(job, 7);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"d", 1, 1, {}};
  if (answer_of(store.jobs(), &JobStore::update_attempt, end).ok()) acknowledged('S');
  if (store.jobs().request_cancel("default", job_id(1)).ok()) acknowledged('C');
}

// Checks the invariants I1 to I5 of a reopened store, given the acknowledged steps `seen`.
void check(Store& store, const std::string& seen, const std::string& where) {
  for (const char step : seen) {
    if (step >= '0' && step <= '9') {
      EXPECT_TRUE(store.jobs().find("default", job_id(step - '0')).ok()) << where;
    } else if (step == 'S') {
      const Job job = store.jobs().find("default", job_id(0)).value();
      EXPECT_EQ(job.state, JobState::kSucceeded) << where;
      EXPECT_TRUE(store.models().find("default", job_id(0)).ok()) << where;
    } else if (step == 'C') {
      EXPECT_EQ(store.jobs().find("default", job_id(1)).value().state, JobState::kCancelled)
          << where;
    }
  }
  requeue_active(store);
  const JobPage page = store.jobs().list(all_jobs()).value();
  for (const Job& job : page.jobs) {
    const std::vector<v1::Event> events = all_events(store, job.uid);
    ASSERT_FALSE(events.empty()) << where;
    EXPECT_EQ(events[0].state().state(), v1::QUEUED) << where;
    EXPECT_FALSE(is_active(job.state)) << where;
    EXPECT_EQ(job.state == JobState::kSucceeded, !job.model.empty()) << where;
  }
  for (int i = 0; i < kJobs; ++i)  // the client retries
    EXPECT_TRUE(store.jobs().submit(numbered_job(i)).ok()) << where;
  EXPECT_EQ(store.jobs().list(all_jobs()).value().jobs.size(), static_cast<size_t>(kJobs)) << where;
}

// No attempt is missing in the books of device use, and none is there twice. Each attempt had one
// device, and ends that the store has seen count in full.
void check_books(const fs::path& state_dir, const std::string& where) {
  Connection db(state_dir / "trainyard.db", Connection::Mode::kReadOnly, 100);
  EXPECT_EQ(db.query_text("SELECT coalesce(sum(device_us), 0) FROM device_uses"),
            db.query_text("SELECT coalesce(sum(end_time_us - start_time_us), 0) FROM attempts"
                          " WHERE end_time_us > 0"))
      << where;
  EXPECT_EQ(db.query_text("SELECT count(*) FROM device_reservations"),
            db.query_text("SELECT count(*) FROM attempts WHERE end_time_us = 0"))
      << where;
}

void check_integrity(const fs::path& state_dir, const std::string& where) {
  Connection db(state_dir / "trainyard.db", Connection::Mode::kReadOnly, 100);
  EXPECT_EQ(db.query_text("PRAGMA integrity_check"), "ok") << where;
  EXPECT_EQ(db.query_text("PRAGMA foreign_key_check"), "") << where;
}

StoreOptions crash_options(const fs::path& directory) {
  StoreOptions options = small_options(directory);
  options.checkpoint_pages = 6;  // so that this little work includes several checkpoints
  return options;
}

struct Crashed {
  std::string seen;           // the acknowledged steps
  bool came_through = false;  // whether work() ended without reaching the operation
};
// Runs work() in a child process that exits at its n-th operation.
Crashed crash_at(const fs::path& directory, int n, bool after_commit) {
  int pipe_fds[2];
  EXPECT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    FaultVfs vfs("crash");
    int count = 0;
    StoreOptions options = crash_options(directory);
    options.vfs = vfs.name();
    if (!after_commit) {
      vfs.set_hook([&](const FileOperation&) {
        if (++count == n) ::_exit(3);
        return SQLITE_OK;
      });
    }
    std::unique_ptr<Store> store = open_or_die(options);
    if (after_commit)  // exit after the commit, before the acknowledgement
      store->observe([&](std::span<const JobChange>) {
        if (++count == n) ::_exit(3);
      });
    work(*store, [&](char step) { (void)!::write(pipe_fds[1], &step, 1); });
    store.reset();
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  Crashed crashed;
  char step = 0;
  while (::read(pipe_fds[0], &step, 1) == 1) crashed.seen += step;
  ::close(pipe_fds[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3)) << n;
  crashed.came_through = status == 0;
  return crashed;
}

void crash_everywhere(bool after_commit, int least) {
  int n = 1;
  for (;; ++n) {
    TemporaryDirectory directory;
    const Crashed crashed = crash_at(directory.path(), n, after_commit);
    const std::string where = "crash at " + std::to_string(n) + ", acknowledged " + crashed.seen;
    (void)open_or_die(crash_options(directory.path()));  // recovers the log
    check_books(directory.path(), where);
    {
      const std::unique_ptr<Store> store = open_or_die(crash_options(directory.path()));
      check(*store, crashed.seen, where);
    }
    check_integrity(directory.path(), where);
    check_books(directory.path(), where);
    if (crashed.came_through || ::testing::Test::HasFailure()) break;
  }
  EXPECT_GE(n, least);  // the work must have at least `least` such operations
}

TEST(StoreCrash, F01F03KilledBeforeEachWriteLosesNothingAcknowledged) {
  SKIP_WHERE_FORKS_DO_NOT_WORK();
  crash_everywhere(/*after_commit=*/false, 60);
}

TEST(StoreCrash, F01F03KilledBetweenCommitAndAnswerMakesNoSecondJob) {
  SKIP_WHERE_FORKS_DO_NOT_WORK();
  crash_everywhere(/*after_commit=*/true, 10);
}

TEST(StoreCrash, F06RestartStormLosesNothingAcknowledged) {
  SKIP_WHERE_FORKS_DO_NOT_WORK();
  TemporaryDirectory directory;
  std::mt19937 random(20260101);
  std::string seen;
  for (int round = 0; round < 25; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const std::unique_ptr<Store> store = open_or_die(crash_options(directory.path()));
      for (int i = 0;; i = (i + 1) % kJobs) {
        NewJob job = numbered_job(i);
        const char step = static_cast<char>('0' + i);
        if (store->jobs().submit(job).ok()) (void)!::write(pipe_fds[1], &step, 1);
      }
    }
    ::close(pipe_fds[1]);
    ::usleep(random() % 30'000);
    ::kill(child, SIGKILL);
    char step = 0;
    while (::read(pipe_fds[0], &step, 1) == 1)
      if (seen.find(step) == std::string::npos) seen += step;
    ::close(pipe_fds[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  EXPECT_FALSE(seen.empty());
  check(*open_or_die(crash_options(directory.path())), seen, "storm");
  check_integrity(directory.path(), "storm");
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Runs an upgrading start that exits at its n-th write, truncation or sync. Returns false if the
// start completed without reaching that operation.
bool upgrade_ends_at(const StoreOptions& with, int n) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultVfs vfs("upgrade");
    int count = 0;
    StoreOptions options = with;
    options.vfs = vfs.name();
    vfs.set_hook([&](const FileOperation&) {
      if (++count == n) ::_exit(3);
      return SQLITE_OK;
    });
    ::_exit(Store::open(options).ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 1) << n;
  return status != 0;
}

// F22: afterwards the store is either the unchanged earlier one, or the upgraded one with a
// complete copy of the earlier one. The next start has both, and the upgrade can be undone.
TEST(StoreCrash, F22AnUpgradeThatIsKilledAtAnyWriteLosesNothing) {
  SKIP_WHERE_FORKS_DO_NOT_WORK();
  const int newest = newest_schema_version();
  int copied = 0, upgraded = 0, n = 1;
  for (bool killed = true; killed && !::testing::Test::HasFailure(); ++n) {
    TemporaryDirectory directory;
    const fs::path db = directory.path() / "trainyard.db";
    const fs::path copy = directory.path() / ("trainyard.db.schema-" + std::to_string(newest - 1));
    make_older_store(directory.path(), newest - 1);
    const std::string before = rows_of(db);
    const StoreOptions options = crash_options(directory.path());
    killed = upgrade_ends_at(options, n);
    const std::string where = "killed at " + std::to_string(n);
    if (fs::exists(copy)) {
      ++copied;
      EXPECT_EQ(rows_of(copy), before) << where;
    }
    if (rows_of(db) != before) {
      ++upgraded;
      EXPECT_TRUE(fs::exists(copy)) << where;
    }
    {
      const std::unique_ptr<Store> store = open_or_die(options);
      EXPECT_EQ(store->jobs().find("default", "open-1").value().message, "in the log") << where;
    }
    check_integrity(directory.path(), where);
    EXPECT_EQ(rows_of(copy), before) << where;
    ASSERT_TRUE(undo_upgrade(directory.path(), [](int32_t, int64_t) { return false; }).ok());
    EXPECT_EQ(rows_of(db), before) << where;
  }
  EXPECT_GE(n, 20);
  EXPECT_GT(copied, upgraded) << "killed between the copy and the migration, too";
  EXPECT_GT(upgraded, 0);
}

TEST(StoreCrash, F22APowerCutAtTheBeginningOfTheMigrationIsSafe) {
  const int before = newest_schema_version() - 1;
  const std::string name = "trainyard.db.schema-" + std::to_string(before);
  TemporaryDirectory directory;
  make_older_store(directory.path(), before);
  FaultVfs vfs("power");
  StoreOptions options = crash_options(directory.path());
  options.vfs = vfs.name();
  std::vector<FileOperation> operations;
  vfs.set_hook([&](const FileOperation& op) {
    operations.push_back(op);
    return SQLITE_OK;
  });
  size_t copied = 0;
  options.copied = [&](const SchemaCopy&) { copied = operations.size(); };
  open_or_die(options);
  vfs.set_hook(nullptr);
  ASSERT_GT(copied, 2u);
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const FileImages disk = after_power_cut({}, operations, copied, [&] { return random(); });
    EXPECT_EQ(disk.at(name + ".tmp"), read_text(directory.path() / name)) << seed;
  }
}

TEST(StoreCrash, F22AnUpgradeWhoseDiskFillsAtAnyWriteChangesNothing) {
  const int newest = newest_schema_version();
  int refused = 0;
  for (int n = 1;; ++n) {
    TemporaryDirectory directory;
    const fs::path db = directory.path() / "trainyard.db";
    make_older_store(directory.path(), newest - 1);
    const std::string before = rows_of(db);
    StoreOptions options = crash_options(directory.path());
    bool came_through = false;
    {
      FaultVfs vfs("full");
      int count = 0;
      options.vfs = vfs.name();
      vfs.set_hook([&](const FileOperation& op) {
        const bool full = op.kind == FileOperation::Kind::kWrite && ++count >= n;
        return full ? SQLITE_FULL : SQLITE_OK;
      });
      const Result<std::unique_ptr<Store>> opened = Store::open(options);
      came_through = opened.ok();
      if (!came_through) {
        EXPECT_EQ(opened.error().reason, "STORAGE_FULL") << n << ": " << opened.error().message;
      }
    }
    if (came_through) break;
    ++refused;
    const bool upgraded = rows_of(db) != before;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      EXPECT_NE(entry.path().extension(), ".tmp") << n << ": a piece of a copy takes room";
    }
    options.vfs.clear();
    open_or_die(options);
    if (!upgraded) continue;  // the disk filled at the first write after the migration
    EXPECT_EQ(rows_of(directory.path() / ("trainyard.db.schema-" + std::to_string(newest - 1))),
              before);
  }
  EXPECT_GE(refused, 10);
}

constexpr const char* kMarkFile = "trainyard.db.commit";

FileImages read_images(const fs::path& directory) {
  FileImages images;
  for (const char* name : {"trainyard.db", "trainyard.db-wal", "trainyard.db.state"}) {
    images[name] = read_text(directory / name);
  }
  return images;
}

TEST(StoreCrash, F20PowerCutAtEachSyncLosesNothingAcknowledged) {
  TemporaryDirectory directory;
  FaultVfs vfs("power");
  StoreOptions options = crash_options(directory.path());
  options.vfs = vfs.name();
  std::unique_ptr<Store> store = open_or_die(options);
  const FileImages before = read_images(directory.path());
  std::vector<FileOperation> operations;
  std::vector<std::string> marks;  // the commit mark before each operation
  std::mutex mu;
  vfs.set_hook([&](const FileOperation& op) {
    const std::lock_guard lock(mu);
    operations.push_back(op);
    marks.push_back(read_text(directory.path() / kMarkFile));
    return SQLITE_OK;
  });
  std::vector<std::pair<size_t, char>> acknowledged;  // operations before each step
  work(*store, [&](char step) {
    const std::lock_guard lock(mu);
    acknowledged.emplace_back(operations.size(), step);
  });
  vfs.set_hook(nullptr);
  store.reset();
  marks.push_back(read_text(directory.path() / kMarkFile));
  EXPECT_GT(std::set<std::string>(marks.begin(), marks.end()).size(), 5u);

  std::mt19937 random(7);
  int cuts = 0;
  bool checkpointed = false;
  for (size_t count = 0; count <= operations.size(); ++count) {
    const bool at_sync = count == operations.size() || count == 0 ||
                         operations[count].kind == FileOperation::Kind::kSync ||
                         operations[count - 1].kind == FileOperation::Kind::kSync;
    if (count > 0) checkpointed |= operations[count - 1].file == "trainyard.db";
    if (!at_sync) continue;
    ++cuts;
    TemporaryDirectory disk;
    for (const auto& [name, image] :
         after_power_cut(before, operations, count, [&] { return random(); }))
      std::ofstream(disk.path() / name, std::ios::binary) << image;
    // The mark is not synced with each commit, so the disk may have any older one.
    std::ofstream(disk.path() / kMarkFile, std::ios::binary)
        << marks[random() % 2 == 0 ? count : random() % (count + 1)];
    std::string seen;
    for (const auto& [when, step] : acknowledged)
      if (when <= count) seen += step;
    const std::string where = "power cut after " + std::to_string(count) + " of " +
                              std::to_string(operations.size()) + ", acknowledged " + seen;
    check(*open_or_die(crash_options(disk.path())), seen, where);
    check_integrity(disk.path(), where);
    if (HasFailure()) break;
  }
  EXPECT_GT(cuts, 30);
  EXPECT_TRUE(checkpointed);
}

}  // namespace
}  // namespace trainyard::server
