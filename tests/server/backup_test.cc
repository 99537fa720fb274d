// Tests of the staged backup: it contains every file that it names and no file unknown to its
// store, and its copy of the store opens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "server/backup/staged_backup.h"
#include "server/store/wait_for.h"
#include "src/base/check.h"
#include "src/base/handle.h"
#include "src/base/sha256.h"
#include "src/checkpoint/checkpoint.h"
#include "tests/server/state_folder_test.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class Backup : public StateFolderTest {
 protected:
  Job start_job(const std::string& id) {
    const Result<Job> job = store_->jobs().submit(new_job(id));
    EXPECT_TRUE(job.ok()) << job.error().message;
    const auto started = store_->jobs().start_attempt(job->uid, {"devices/cpu"}, "n", "R", "m");
    EXPECT_TRUE(started.ok());
    EXPECT_TRUE(answer_of(store_->jobs(), &JobStore::set_process, job->uid, 1, 4711, 99).ok());
    return *started;
  }
  void save(const Job& job, int64_t step) {
    CheckpointState state;
    state.step = step;
    state.extra_json = "{}";
    const auto saved = save_checkpoint(local_files(), paths_.checkpoints(job.uid), state, {}, {});
    EXPECT_TRUE(saved.ok()) << saved.error().message;
  }
  void report(const Job& job, int64_t step) {
    AttemptUpdate update;
    update.job_uid = job.uid;
    update.attempt = 1;
    v1::Event event;
    event.mutable_checkpoint()->set_step(step);
    update.events.push_back(event);
    EXPECT_TRUE(answer_of(store_->jobs(), &JobStore::update_attempt, std::move(update)).ok());
  }

  std::unique_ptr<StagedBackup> take() {
    Result<std::unique_ptr<StagedBackup>> backup = StagedBackup::begin(paths_);
    if (!backup.ok()) {
      ADD_FAILURE() << backup.error().message;
      return nullptr;
    }
    return std::move(*backup);
  }
  /// Copies the store and returns the paths of all files in the backup.
  static std::set<std::string> finish(StagedBackup& backup) {
    for (bool done = false; !done;) {
      const Result<bool> more = backup.prepare();
      EXPECT_TRUE(more.ok()) << more.error().message;
      done = !more.ok() || *more;
    }
    std::set<std::string> names;
    for (const FrozenFile& file : backup.files()) {
      names.insert(file.path);
      EXPECT_EQ(static_cast<int64_t>(fs::file_size(backup.path_of(file))), file.size_bytes);
    }
    return names;
  }
  /// Copies the backup's files to a new folder, as a restore would, and returns that folder.
  fs::path copy_of(const StagedBackup& backup) {
    const fs::path to = folder_.path() / "restored";
    for (const FrozenFile& file : backup.files()) {
      fs::create_directories((to / file.path).parent_path());
      fs::copy_file(backup.path_of(file), to / file.path);
    }
    return to;
  }
  static bool has_step(const std::set<std::string>& names, const Job& job, const char* step) {
    return names.contains("jobs/" + job.uid + "/checkpoints/" + step + "/state.json");
  }
};

TEST_F(Backup, TheCopyIsAConsistentSnapshot) {
  const std::string sha256 = add_upload("content");
  ASSERT_TRUE(store_->uploads().begin({"default", sha256_hex("x"), 900}).ok());
  const Job job = start_job("running");
  const auto backup = take();
  ASSERT_NE(backup, nullptr);
  ASSERT_TRUE(store_->jobs().submit(new_job("later")).ok());  // during the copy of the store
  const std::set<std::string> names = finish(*backup);
  EXPECT_TRUE(names.contains("trainyard.db") && names.contains("trainyard.db.commit"));
  EXPECT_TRUE(names.contains("uploads/" + sha256));
  EXPECT_GT(backup->commit(), 0);
  const auto restored = open_or_die(small_options(copy_of(*backup)));
  EXPECT_TRUE(restored->jobs().find("default", "running").ok());
  EXPECT_EQ(restored->jobs().find("default", "later").error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(restored->uploads().find("default", sha256_hex("x"), 900)->size_bytes, 0)
      << "the bytes of an upload under way are not in it, so its row must not be either";
  EXPECT_EQ(restored->jobs().find_attempt(job.uid, 1)->pid, 0)
      << "its daemon would end a process that belongs to the one that goes on";
  EXPECT_EQ(store_->jobs().find_attempt(job.uid, 1)->pid, 4711) << "the running store is unchanged";
}

TEST_F(Backup, ACopyWithoutItsStoreIsNotAcceptedAsANewState) {
  add_upload("one");
  const auto backup = take();
  finish(*backup);
  const fs::path restored = copy_of(*backup);
  fs::remove(restored / "trainyard.db");
  const auto opened = Store::open(small_options(restored));
  ASSERT_FALSE(opened.ok()) << "the state file says that a store was here";
  EXPECT_EQ(opened.error().reason, "STORE_MISSING");
}

TEST_F(Backup, ACheckpointUnknownToTheStoreIsLeftOut) {
  const Job job = start_job("job-a");
  save(job, 100);
  report(job, 100);
  save(job, 200);  // the report of this checkpoint has not reached the store yet
  const auto backup = take();
  const std::set<std::string> names = finish(*backup);
  EXPECT_TRUE(has_step(names, job, "step-000000100"));
  EXPECT_FALSE(has_step(names, job, "step-000000200"))
      << "the job would go on from it without the metrics before it";
  EXPECT_TRUE(backup->warnings().empty());
}

TEST_F(Backup, AJobWhoseOnlyCheckpointIsNewerDoesNotStartOver) {
  const Job job = start_job("job-a");
  report(job, 100);  // only the report: the checkpoint's folder has been pruned
  save(job, 200);
  save(job, 300);
  const auto backup = take();
  const std::set<std::string> names = finish(*backup);
  EXPECT_TRUE(has_step(names, job, "step-000000200"));
  EXPECT_FALSE(has_step(names, job, "step-000000300"));
  ASSERT_EQ(backup->warnings().size(), 1u);
  EXPECT_NE(backup->warnings()[0].find("job-a"), std::string::npos) << backup->warnings()[0];
}

TEST_F(Backup, FilesRemovedDuringABackupStayInIt) {
  const std::string sha256 = add_upload("content");
  const Job job = start_job("job-a");
  save(job, 100);
  report(job, 100);
  const auto backup = take();
  fs::remove_all(paths_.job(job.uid));
  fs::remove(paths_.upload(sha256));
  const std::set<std::string> names = finish(*backup);
  EXPECT_TRUE(has_step(names, job, "step-000000100"));
  const fs::path restored = copy_of(*backup);
  EXPECT_EQ(*sha256_file(restored / "uploads" / sha256), sha256);
  EXPECT_TRUE(load_newest_checkpoint(StatePaths(restored).checkpoints(job.uid), nullptr).ok());
}

TEST_F(Backup, FilesMissingOnTheServerAreNamed) {
  fs::remove(paths_.upload(add_upload("content")));
  const auto backup = take();
  ASSERT_NE(backup, nullptr);
  ASSERT_EQ(backup->warnings().size(), 1u);
  EXPECT_NE(backup->warnings()[0].find("upload"), std::string::npos);
  finish(*backup);
}

TEST_F(Backup, UnreferencedFilesAreLeftOut) {
  write(paths_.dataset("stray") / "digest", "x");
  write(paths_.model("stray") / "model.json", "x");
  write(paths_.upload_part("default", sha256_hex("x"), 5), "half");
  write(paths_.algorithms() / "H200.json", "{}");
  write(paths_.algorithms() / "H200.json.tmp", "{");
  write(state_ / "trainyard.db.schema-7", "of before an upgrade");
  const auto backup = take();
  EXPECT_EQ(finish(*backup), (std::set<std::string>{"algorithms/H200.json", "trainyard.db",
                                                    "trainyard.db.commit", "trainyard.db.state"}));
}

// Fails if a backup contains a file of -1 bytes but reports that it is complete.
TEST_F(Backup, AFileOfUnknownSizeIsAnError) {
  const fs::path links = folder_.path() / "links";
  fs::create_directories(links / "models/m");
  std::ofstream(links / "models/m/model.json") << "{}";
  // The listing opens folder after folder, but queries each size by the complete path, which is too
  // long here.
  UniqueFd at(::open((links / "models/m").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string name(200, 'x');
  for (int depth = 0; depth < 24; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0700), 0);
    at.reset(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  const UniqueFd file(::openat(at.get(), "far", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const FrozenFiles frozen(folder_.path(), links);
  EXPECT_FALSE(frozen.list("models/m").ok());
}

TEST_F(Backup, AFrozenPathStaysInTheFolder) {
  FrozenFiles frozen(folder_.path(), folder_.path() / "links");
  std::ofstream(folder_.path() / "kept") << "content";
  const std::string kept = folder_.path() / "kept";
  for (const std::string& path :
       {kept, std::string("../kept"), std::string("a/../../kept"), std::string()}) {
    EXPECT_THROW((void)frozen.freeze(path), InvariantError) << path;
    EXPECT_THROW(frozen.forget(path), InvariantError) << path;
  }
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(Backup, TheLinksAreRemovedAtItsEndAndByTheNextStart) {
  add_upload("content");
  {
    const auto backup = take();
    EXPECT_TRUE(fs::exists(paths_.backup()));
  }
  EXPECT_FALSE(fs::exists(paths_.backup()));
  write(paths_.backup() / "uploads/left", "x");
  StagedBackup::remove_leftovers(paths_);
  EXPECT_FALSE(fs::exists(paths_.backup()));
}

TEST_F(Backup, ConsecutiveBackupsSucceedWhileCheckpointsChange) {
  const Job job = start_job("job-a");
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    for (int64_t step = 1; !stop; ++step) {
      save(job, step);
      report(job, step);
      prune_checkpoints(local_files(), paths_.checkpoints(job.uid), {.newest = 1});
    }
  });
  for (int i = 0; i < 20; ++i) {
    const auto backup = take();
    finish(*backup);
    const fs::path restored = copy_of(*backup);
    const auto store = open_or_die(small_options(restored));
    const Result<Job> row = store->jobs().find("default", "job-a");
    const auto loaded = load_newest_checkpoint(StatePaths(restored).checkpoints(job.uid), nullptr);
    if (row->checkpoint_step > 0) {
      ASSERT_TRUE(loaded.ok()) << row->checkpoint_step << " " << loaded.error().message;
      EXPECT_LE(loaded->state.step, row->checkpoint_step);
    }
    EXPECT_TRUE(backup->warnings().empty());
    fs::remove_all(restored);
  }
  stop = true;
  worker.join();
}

}  // namespace
}  // namespace trainyard::server
