// F22: an upgrade of the store leaves a complete copy of the earlier store, and undoing the upgrade
// loses nothing of that copy. The tests fail if the copy lacks the log, if a refusal changes a
// file, or if the restored store is refused or mixed with the newer one's log.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "server/store/schema_copy.h"
#include "server/store/store_files.h"
#include "server/store/wait_for.h"
#include "tests/data/faulty_files.h"
#include "tests/server/older_store.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

const int kNewest = newest_schema_version();
const int kBefore = kNewest - 1;

bool nobody(int32_t, int64_t) { return false; }

class StoreUpgrade : public ::testing::Test {
 protected:
  fs::path copy_of(int schema) const {
    return state / ("trainyard.db.schema-" + std::to_string(schema));
  }
  std::vector<std::string> copies() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(state)) {
      const std::string name = entry.path().filename().string();
      if (name.find("schema-") != std::string::npos) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string name_of_copy(int schema) const { return copy_of(schema).filename().string(); }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(state)) {
      const std::string name = entry.path().filename().string();
      if (name == "lock" || name.ends_with("-shm")) continue;  // readers change these files too
      std::ifstream in(entry.path(), std::ios::binary);
      all[name] = {std::istreambuf_iterator<char>(in), {}};
    }
    return all;
  }
  /// Creates a store of schema kBefore and returns its rows.
  std::string make_older() {
    make_older_store(state, kBefore);
    return rows_of(db);
  }
  /// Opens and closes the store as a daemon of schema kBefore does, and returns its rows.
  std::string opened_before_upgrade() {
    StoreOptions earlier = options;
    earlier.schema_newest = kBefore;
    const Result<OpenStore> opened = open_store(earlier);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? rows_of(*opened->db) : "";
  }
  static int schema_of(const fs::path& path) {
    Connection connection(path, Connection::Mode::kReadWrite, 100);
    return schema_version(connection);
  }
  /// Upgrades the store in a child that takes a job and is killed, and returns the store's rows.
  std::string upgraded_and_killed() {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::unique_ptr<Store> store = open_or_die(options);
      ::_exit(store->jobs().submit(new_job("since")).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return rows_of(db);
  }
  Error refused(const StoreOptions& with) {
    const Result<std::unique_ptr<Store>> opened = Store::open(with);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? Error{} : opened.error();
  }
  Error not_undone(const IsAlive& is_alive = nobody) {
    const Result<UndoneUpgrade> undone = undo_upgrade(state, is_alive);
    EXPECT_FALSE(undone.ok());
    return undone.ok() ? Error{} : undone.error();
  }

  TemporaryDirectory directory;
  fs::path state = directory.path() / "state";
  fs::path db = state / "trainyard.db";
  StoreOptions options = small_options(state);
};

TEST_F(StoreUpgrade, ACompleteCopyExistsBeforeTheMigration) {
  const std::string before = make_older();
  ASSERT_GT(fs::file_size(db.string() + "-wal"), 0u);
  std::string at_migration, reported;
  options.copied = [&](const SchemaCopy& copy) {
    reported = copy.path.filename().string();
    at_migration = rows_of(db);
  };
  const std::unique_ptr<Store> store = open_or_die(options);
  EXPECT_EQ(reported, name_of_copy(kBefore));
  EXPECT_EQ(at_migration, before) << "nothing was migrated yet";
  EXPECT_EQ(rows_of(copy_of(kBefore)), before) << "with what was in the log";
  EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore)});
  EXPECT_EQ(store->jobs().find("default", "open-1").value().message, "in the log");
}

TEST_F(StoreUpgrade, EarlierUsageOfOwnersIsCounted) {
  constexpr int64_t kYearUs = int64_t{8760} * 3600 * 1'000'000;
  make_older();
  const std::unique_ptr<Store> store = open_or_die(options);
  ASSERT_TRUE(store->jobs().keep_uses(kYearUs).ok());
  const Uses uses = store->jobs().uses().value();
  ASSERT_EQ(uses.past.size(), 1u);
  EXPECT_NEAR(uses.past[0].used, 0.128 + 0.085, 0.001) << "of the two attempts that ended";
  EXPECT_EQ(uses.running.size(), 1u);
}

TEST_F(StoreUpgrade, OwnersOfEarlierDataAreInTheAudit) {
  make_older_store(state, 2);
  {
    Connection connection(db, Connection::Mode::kReadWrite, 100);
    connection.execute(
        "INSERT INTO audit (time_us, caller, address, action, object, result) VALUES"
        " (1, 'ada', 'unix', 'CreateDataset', 'projects/default/datasets/table@1', 'OK'),"
        " (2, 'bob', 'unix', 'CreateDataset', 'projects/default/datasets/table@1', 'OK'),"
        " (3, 'eve', 'unix', 'CreateDataset', 'projects/default/datasets/broken@1', 'DISK_LOW')");
    connection.execute("UPDATE jobs SET owner = 'carl' WHERE id = 'done-1'");
  }
  const std::unique_ptr<Store> store = open_or_die(options);
  EXPECT_EQ(store->datasets().find("default", {"table"}).value().owner, "ada") << "the first call";
  EXPECT_EQ(store->datasets().find("default", {"broken"}).value().owner, "") << "nobody is known";
  EXPECT_EQ(store->models().find("default", "done-1").value().owner, "carl") << "its job's";
}

TEST_F(StoreUpgrade, ANewStoreAndALaterStartMakeNoCopy) {
  options.copied = [](const SchemaCopy&) { ADD_FAILURE() << "nothing was migrated"; };
  open_or_die(options);
  open_or_die(options);
  EXPECT_TRUE(copies().empty());
}

TEST_F(StoreUpgrade, AnUndoRestoresTheRowsAndKeepsTheUpgradedStore) {
  const std::string before = make_older();
  const std::string after = upgraded_and_killed();
  ASSERT_NE(after, before);

  const Result<UndoneUpgrade> undone = undo_upgrade(state, nobody);
  ASSERT_TRUE(undone.ok()) << undone.error().message;
  EXPECT_EQ(undone->schema, kBefore);
  EXPECT_EQ(undone->upgraded.path, copy_of(kNewest));
  EXPECT_EQ(copies(), std::vector{name_of_copy(kNewest)});
  EXPECT_EQ(rows_of(copy_of(kNewest)), after);
  EXPECT_EQ(opened_before_upgrade(), before);
  EXPECT_EQ(opened_before_upgrade(), before) << "again, with the mark of the first time";

  // Upgrade again: the copy of the earlier store replaces the copy of the newer one.
  EXPECT_EQ(open_or_die(options)->jobs().list(all_jobs()).value().jobs.size(), 3u);
  EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore)});
}

TEST_F(StoreUpgrade, AnUndoCanBeUndone) {
  make_older();
  {
    const std::unique_ptr<Store> store = open_or_die(options);
    ASSERT_TRUE(store->jobs().submit(new_job("since")).ok());
  }
  ASSERT_TRUE(undo_upgrade(state, nobody).ok());
  ASSERT_TRUE(undo_upgrade(state, nobody).ok());
  EXPECT_TRUE(open_or_die(options)->jobs().find("default", "since").ok());
  EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore)});
}

TEST_F(StoreUpgrade, WithoutRoomForTheCopyNothingChanges) {
  make_older();
  const auto before = contents();
  options.free_bytes = [](const fs::path&) { return int64_t{1 << 20}; };
  options.copied = [](const SchemaCopy&) { ADD_FAILURE() << "there was no room"; };
  const Error e = refused(options);
  EXPECT_EQ(e.reason, "STORAGE_FULL");
  EXPECT_EQ(e.code, ErrorCode::kResourceExhausted);
  const int64_t needed = std::stoll(e.metadata.at("needed_bytes"));
  EXPECT_GT(needed, 16 << 20);
  EXPECT_NE(e.message.find("(" + std::to_string(needed) + " bytes)"), std::string::npos)
      << e.message;
  EXPECT_NE(e.message.find("(1048576 bytes) free"), std::string::npos) << e.message;
  EXPECT_EQ(contents(), before);
  options.free_bytes = [=](const fs::path&) { return needed; };
  options.copied = nullptr;
  open_or_die(options);
}

TEST_F(StoreUpgrade, OnlyTheNewestCopyIsKept) {
  make_older_store(state, kBefore - 1);
  StoreOptions earlier = options;
  earlier.schema_newest = kBefore;
  ASSERT_TRUE(open_store(earlier).ok());
  EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore - 1)});
  open_or_die(options);
  EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore)});
}

TEST_F(StoreUpgrade, AnEarlierProgramNamesTheUndoCommand) {
  make_older();
  open_or_die(options);
  options.schema_newest = kBefore;
  Error e = refused(options);
  EXPECT_EQ(e.reason, "STORE_NEWER");
  EXPECT_NE(e.message.find(name_of_copy(kBefore)), std::string::npos) << e.message;
  EXPECT_NE(e.message.find("trainyardd --undo-upgrade"), std::string::npos) << e.message;
  options.schema_newest = kBefore - 1;  // an even earlier program cannot use this copy
  e = refused(options);
  EXPECT_EQ(e.reason, "STORE_NEWER");
  EXPECT_EQ(e.message.find("undo-upgrade"), std::string::npos) << e.message;
}

TEST_F(StoreUpgrade, AnImpossibleUndoIsRefusedAndChangesNothing) {
  make_older();
  EXPECT_EQ(not_undone().reason, "SCHEMA_COPY_NOT_FOUND");
  std::unique_ptr<Store> store = open_or_die(options);
  EXPECT_EQ(not_undone().reason, "STATE_DIR_LOCKED");
  const Job job = run_job(*store, new_job("live"));
  ASSERT_TRUE(
      answer_of(store->jobs(), &JobStore::set_process, job.uid, job.attempt, 4711, 99).ok());
  store.reset();
  const Error alive =
      not_undone([](int32_t pid, int64_t start) { return pid == 4711 && start == 99; });
  EXPECT_EQ(alive.reason, "WORKERS_ALIVE");
  EXPECT_NE(alive.message.find("live (pid 4711)"), std::string::npos) << alive.message;

  const auto before = contents();
  const std::string copy = before.at(name_of_copy(kBefore));
  std::string with_hole = copy;
  std::fill_n(with_hole.begin() + 4 * 4096, 4096, '\0');
  for (const std::string& bad :
       {std::string("rubbish"), copy.substr(0, copy.size() / 2), with_hole}) {
    std::ofstream(copy_of(kBefore), std::ios::binary) << bad;
    const Error e = not_undone();
    EXPECT_EQ(e.reason, "SCHEMA_COPY_DAMAGED");
    EXPECT_NE(e.message.find(name_of_copy(kBefore)), std::string::npos) << e.message;
  }
  std::ofstream(copy_of(kBefore), std::ios::binary) << copy;
  fs::rename(copy_of(kBefore), copy_of(kNewest + 1));
  EXPECT_EQ(not_undone().reason, "SCHEMA_COPY_NEWER");
  fs::rename(copy_of(kNewest + 1), copy_of(kBefore));
  EXPECT_EQ(contents(), before);
  EXPECT_TRUE(undo_upgrade(state, nobody).ok());
}

/// Ends an undo at each file operation except SQLite's own (for those see store_crash_test.cc) and
/// repeats it. Meanwhile the daemon of either version must start with its complete store.
TEST_F(StoreUpgrade, AnInterruptedUndoCanBeRepeated) {
  int cut = 0;
  for (int at = 0; cut == at; ++at) {
    for (const auto mode : {FaultyFiles::Mode::kCrash, FaultyFiles::Mode::kAfter}) {
      fs::remove_all(state);
      const std::string before = make_older();
      upgraded_and_killed();
      FaultyFiles files(at, mode);
      if (undo_upgrade(state, nobody, files).ok()) continue;
      cut = at + 1;
      if (schema_of(db) == kNewest) {
        if (mode == FaultyFiles::Mode::kAfter) {  // also try a daemon before the undo is repeated
          EXPECT_TRUE(open_or_die(options)->jobs().find("default", "since").ok()) << at;
        }
        const Result<UndoneUpgrade> again = undo_upgrade(state, nobody);
        ASSERT_TRUE(again.ok()) << at << ": " << again.error().message;
      }
      EXPECT_EQ(opened_before_upgrade(), before) << at;
      EXPECT_EQ(copies(), std::vector{name_of_copy(kNewest)}) << at;
    }
  }
  EXPECT_GE(cut, 4);  // removals, the link, its sync, the rename
}

TEST_F(StoreUpgrade, AnInterruptedCopyIsRepeated) {
  int cut = 0;
  for (int at = 0; cut == at; ++at) {
    for (const auto mode : {FaultyFiles::Mode::kCrash, FaultyFiles::Mode::kAfter}) {
      fs::remove_all(state);
      make_older_store(state, kBefore);
      std::ofstream(copy_of(kBefore - 1)) << "of an upgrade before this one";
      const std::string before = rows_of(db);
      {
        Connection older(db, Connection::Mode::kReadWrite, 100);
        FaultyFiles files(at, mode);
        if (copy_before_migration(older, options, files).ok()) continue;
      }
      cut = at + 1;
      EXPECT_EQ(rows_of(db), before) << at;
      const std::unique_ptr<Store> store = open_or_die(options);
      EXPECT_EQ(copies(), std::vector{name_of_copy(kBefore)}) << at;
      EXPECT_EQ(rows_of(copy_of(kBefore)), before) << at;
    }
  }
  EXPECT_GE(cut, 2);  // the rename, and the removal of the older copy
}

}  // namespace
}  // namespace trainyard::server
