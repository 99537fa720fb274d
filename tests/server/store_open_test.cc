// F22 and F24: the store refuses to open damaged or foreign files. The error names the reason, the
// file and the remedy, and a refusal changes nothing on disk.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <latch>

#include "server/store/migrations.h"
#include "server/store/sqlite.h"
#include "server/store/store_files.h"
#include "tests/server/older_store.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class StoreOpen : public ::testing::Test {
 protected:
  Error refused() {
    Result<std::unique_ptr<Store>> opened = Store::open(options);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? Error{} : opened.error();
  }
  void make() { ASSERT_TRUE(open_or_die(options)->jobs().submit(new_job("kept")).ok()); }

  TemporaryDirectory directory;
  StoreOptions options = small_options(directory.path() / "state");
  fs::path db = directory.path() / "state/trainyard.db";
};

TEST_F(StoreOpen, F24ASecondDaemonIsRefusedWithThePid) {
  const std::unique_ptr<Store> first = open_or_die(options);
  const Error e = refused();
  EXPECT_EQ(e.reason, "STATE_DIR_LOCKED");
  EXPECT_NE(e.message.find("pid " + std::to_string(::getpid())), std::string::npos) << e.message;
  EXPECT_TRUE(first->jobs().submit(new_job()).ok());
}

TEST_F(StoreOpen, F24LockOfAKilledDaemonIsNotStale) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Store> store = open_or_die(options);
    ::_exit(store->jobs().submit(new_job("kept")).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(open_or_die(options)->jobs().find("default", "kept").ok());
}

// A daemon was killed while it started a worker.
TEST_F(StoreOpen, F24LockThatAKilledDaemonsChildStillHasIsWaitedFor) {
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    const std::unique_ptr<Store> store = open_or_die(options);
    if (::fork() == 0) {  // the child inherits the lock's descriptor
      ::usleep(300'000);
      ::_exit(0);
    }
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Result<std::unique_ptr<Store>> next = Store::open(options);
  EXPECT_TRUE(next.ok()) << next.error().message;
}

TEST_F(StoreOpen, F22AnotherFileIsNeverReplaced) {
  fs::create_directories(options.state_dir);
  for (const std::string& text : {std::string(), std::string("hello, not a database")}) {
    write(db, text);
    const Error e = refused();
    EXPECT_EQ(e.reason, "STORE_CORRUPT");
    EXPECT_NE(e.message.find("trainyard.db"), std::string::npos);
    EXPECT_EQ(content(db), text);
  }
}

TEST_F(StoreOpen, F22ForeignSqliteFileIsRefused) {
  fs::create_directories(options.state_dir);
  Connection(db, Connection::Mode::kCreate, 100).execute("CREATE TABLE other (x)");
  EXPECT_EQ(refused().reason, "STORE_FOREIGN");
}

TEST_F(StoreOpen, F22NewerSchemaIsRefused) {
  make();
  Connection(db, Connection::Mode::kReadWrite, 100).execute("PRAGMA user_version = 4711");
  const Error e = refused();
  EXPECT_EQ(e.reason, "STORE_NEWER");
  EXPECT_NE(e.message.find("4711"), std::string::npos);
}

/// Fails if a migration loses rows, or if names in old jobs no longer refer to anything.
TEST_F(StoreOpen, DataOfAnEarlierSchemaSurvivesTheUpgrade) {
  make_older_store(options.state_dir, 1);
  const std::unique_ptr<Store> store = open_or_die(options);
  DatasetStore& datasets = store->datasets();
  const Dataset table = datasets.find("default", {"table"}).value();
  EXPECT_EQ(table.name(), "projects/default/datasets/table@1");
  EXPECT_EQ(table.state, v1::Dataset::READY);
  EXPECT_EQ(table.schema.train_rows(), 8);
  EXPECT_EQ(datasets.find("default", {"broken", 1}).value().reason, "DATASET_INVALID");
  EXPECT_EQ(datasets.list("default", true, 0, "").value().datasets.size(), 2u);
  for (const char* id : {"done-1", "open-1"}) {
    EXPECT_EQ(store->jobs().find("default", id).value().spec.dataset().name(), table.name()) << id;
  }
  EXPECT_EQ(store->models().find("default", "gone-1").value().dataset,
            "projects/default/datasets/gone@1");

  requeue_active(*store);
  const Job open = store->jobs().find("default", "open-1").value();
  EXPECT_EQ(open.state, JobState::kQueued);
  EXPECT_EQ(open.spec.dataset().name(), table.name()) << "saved and read again";
  NewJob next = new_job("next-1");
  next.dataset = table.ref();
  EXPECT_TRUE(store->jobs().submit(std::move(next)).ok());
}

TEST_F(StoreOpen, F22AMissingStoreIsNotCreated) {
  make();
  fs::remove(db);
  EXPECT_EQ(refused().reason, "STORE_MISSING");
  EXPECT_FALSE(fs::exists(db));
}

TEST_F(StoreOpen, F22ARequiredStoreIsNotCreated) {
  options.must_exist = true;
  EXPECT_EQ(refused().reason, "STORE_MISSING");
  EXPECT_FALSE(fs::exists(db));
}

TEST_F(StoreOpen, F22DeletedWalOfAKilledDaemonIsNoticed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Store> store = open_or_die(options);
    ::_exit(store->jobs().submit(new_job("kept")).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const fs::path wal = db.string() + "-wal";
  const std::string saved = content(wal);
  ASSERT_FALSE(saved.empty());
  fs::remove(wal);
  EXPECT_EQ(refused().reason, "STORE_WAL_MISSING");
  write(wal, saved);  // apply the remedy
  EXPECT_TRUE(open_or_die(options)->jobs().find("default", "kept").ok());
}

/// Leaves the state of a killed daemon with five acknowledged jobs in the log, one per commit.
void kill_with_five_jobs(const StoreOptions& options) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Store> store = open_or_die(options);
    for (int i = 0; i < 5; ++i) {
      if (!store->jobs().submit(new_job("job-" + std::to_string(i))).ok()) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST_F(StoreOpen, F22ACutOrDamagedLogIsNoticed) {
  kill_with_five_jobs(options);
  const fs::path wal = db.string() + "-wal", mark = db.string() + ".commit";
  const std::string saved = content(wal);
  std::string flipped = saved;
  flipped[flipped.size() * 2 / 3] ^= 1;
  for (const std::string& damaged : {std::string(), saved.substr(0, saved.size() / 2), flipped}) {
    write(wal, damaged);
    const Error e = refused();
    EXPECT_EQ(e.reason, "STORE_COMMITS_LOST");
    EXPECT_NE(e.message.find("were acknowledged"), std::string::npos) << e.message;
    EXPECT_NE(e.message.find("trainyard.db.commit"), std::string::npos) << "the remedy";
    // It must be refused again, even if the first attempt to open has changed the log.
    EXPECT_EQ(refused().reason, "STORE_COMMITS_LOST");
  }
}

TEST_F(StoreOpen, F22ARestoredLogIsAccepted) {
  kill_with_five_jobs(options);
  const fs::path wal = db.string() + "-wal";
  const std::string saved_wal = content(wal), saved_db = content(db);
  write(wal, "");
  EXPECT_EQ(refused().reason, "STORE_COMMITS_LOST");
  write(wal, saved_wal);  // restore a backup of both files
  write(db, saved_db);
  const std::unique_ptr<Store> store = open_or_die(options);
  EXPECT_EQ(store->jobs().list(all_jobs()).value().jobs.size(), 5u);
}

TEST_F(StoreOpen, F22TheLossOfALogCanBeAccepted) {
  kill_with_five_jobs(options);
  write(db.string() + "-wal", "");
  EXPECT_EQ(refused().reason, "STORE_COMMITS_LOST");
  fs::remove(db.string() + ".commit");
  {
    const std::unique_ptr<Store> store = open_or_die(options);
    EXPECT_TRUE(store->jobs().list(all_jobs()).value().jobs.empty());
    EXPECT_TRUE(store->jobs().submit(new_job("next")).ok());
  }
  EXPECT_EQ(open_or_die(options)->jobs().list(all_jobs()).value().jobs.size(), 1u);
}

TEST_F(StoreOpen, TheCommitMarkSurvivesATornWrite) {
  const fs::path path = db.string() + ".commit";
  fs::create_directories(options.state_dir);
  CommitMark mark = CommitMark::open(path, 41).value();
  EXPECT_EQ(CommitMark::read(path).value(), 41);
  ASSERT_TRUE(mark.write(42) && mark.write(43) && mark.sync());
  const std::string whole = content(path);
  EXPECT_EQ(CommitMark::read(path).value(), 43);
  for (size_t at : {size_t{0}, size_t{512}}) {  // overwrite part of a sector
    std::string torn = whole;
    torn.replace(at, 20, "rubbish             ");
    write(path, torn);
    EXPECT_EQ(CommitMark::read(path).value(), at == 0 ? 43 : 42);
  }
  for (const std::string& bad :
       {std::string(), std::string("trainyard commit 7 00000000"), std::string(1024, 'x')}) {
    write(path, bad);
    EXPECT_EQ(CommitMark::read(path).error().reason, "STORE_MARK_DAMAGED");
  }
  fs::remove(path);
  EXPECT_EQ(CommitMark::read(path).value(), std::nullopt);
}

TEST_F(StoreOpen, F22FlippedBytesAreFoundOrHarmless) {
  make();
  const std::string good = content(db);
  int found = 0;
  for (size_t at = 0; at < good.size(); at += 2048) {
    std::string bad = good;
    for (size_t i = at; i < std::min(at + 64, bad.size()); ++i) bad[i] = static_cast<char>(~bad[i]);
    write(db, bad);
    const Result<std::unique_ptr<Store>> opened = Store::open(options);
    if (!opened.ok()) {
      ++found;
      EXPECT_TRUE(opened.error().reason == "STORE_CORRUPT" ||
                  opened.error().reason == "STORE_NEWER" ||
                  opened.error().reason == "STORE_FOREIGN")
          << at << ": " << opened.error().reason << " " << opened.error().message;
    }
    for (const char* suffix : {"-wal", "-shm"}) fs::remove(db.string() + suffix);
    write(db.string() + ".state", "closed\n");
  }
  EXPECT_GT(found, 3);
}

TEST_F(StoreOpen, InterruptedFirstStartLeavesNothingHalfMade) {
  fs::create_directories(options.state_dir);
  write(db.string() + ".new", "half made");
  EXPECT_TRUE(open_or_die(options)->jobs().submit(new_job()).ok());
  EXPECT_FALSE(fs::exists(db.string() + ".new"));
}

TEST_F(StoreOpen, DirectoryThatCannotBeMadeIsNamed) {
  write(directory.path() / "file", "");
  options.state_dir = directory.path() / "file" / "state";
  const Error e = refused();
  EXPECT_EQ(e.reason, "STATE_DIR_NOT_WRITABLE");
  EXPECT_NE(e.message.find("file/state"), std::string::npos);
}

TEST_F(StoreOpen, StateDirectoryIsPrivate) {
  make();
  EXPECT_EQ(fs::status(options.state_dir).permissions(), fs::perms::owner_all);
}

TEST_F(StoreOpen, ReadersNeverCheckpoint) {
  const std::unique_ptr<Store> store = open_or_die(options);
  ASSERT_TRUE(store->jobs().submit(new_job("kept")).ok());
  const std::string before = content(db);
  const auto wal_size = fs::file_size(db.string() + "-wal");
  {
    Connection reader(db, Connection::Mode::kReadOnly, 100);
    EXPECT_EQ(reader.query_text("SELECT count(*) FROM jobs"), "1");
    EXPECT_THROW(reader.execute("PRAGMA wal_checkpoint(TRUNCATE)"), SqliteError);
  }
  EXPECT_EQ(content(db), before);
  EXPECT_EQ(fs::file_size(db.string() + "-wal"), wal_size);
}

// The writer is never idle here. Without WAL checkpoints the log would grow to 12 MiB.
TEST_F(StoreOpen, TheLogIsBoundedUnderContinuousChanges) {
  constexpr int kSubmits = 8000;
  options.checkpoint_pages = 8;
  options.queued_jobs_max = kSubmits;
  const std::unique_ptr<Store> store = open_or_die(options);
  std::latch answered(kSubmits);
  std::atomic<int> stored = 0;
  for (int i = 0; i < kSubmits; ++i) {
    store->jobs().submit(new_job(), [&](const Result<Job>& job) {
      stored += job.ok() ? 1 : 0;
      answered.count_down();
    });
  }
  answered.wait();
  EXPECT_EQ(stored, kSubmits);
  EXPECT_LT(fs::file_size(db.string() + "-wal"), 4 << 20);
}

TEST(StoreFiles, NetworkFileSystemsAreKnownByTheirNumbers) {
  EXPECT_TRUE(is_network_file_system(0x6969));
  EXPECT_TRUE(is_network_file_system(static_cast<int32_t>(0xff534d42)));  // from a 32-bit statfs
  EXPECT_FALSE(is_network_file_system(0xef53));                           // ext4
  EXPECT_FALSE(is_network_file_system(0x01021994));                       // tmpfs
}

TEST(SqliteWarning, SaysWhichVersionIsLoaded) {
  const std::optional<std::string> warning = sqlite_warning();
  const int version = sqlite3_libversion_number();
  EXPECT_EQ(warning.has_value(),
            !((version >= 3051003 && version < 3052000) || version >= 3053000));
  if (warning) {
    EXPECT_NE(warning->find(sqlite3_libversion()), std::string::npos);
  }
}

}  // namespace
}  // namespace trainyard::server
