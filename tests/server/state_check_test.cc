// Tests that --check names damaged items by kind and name and changes no byte.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "proto/convert/data.h"
#include "server/check/state_check.h"
#include "server/config/paths.h"
#include "server/store/migrations.h"
#include "server/store/store_files.h"
#include "server/store/wait_for.h"
#include "src/base/sha256.h"
#include "src/checkpoint/checkpoint.h"
#include "src/data/dataset.h"
#include "tests/server/state_folder_test.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class StateChecked : public StateFolderTest {
 protected:
  static void flip_byte(const fs::path& path, int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x20));
  }
  /// Creates a READY dataset of real content.
  void add_dataset(const std::string& id) {
    const std::string csv = "a,b,label\n1,2,x\n3,4,y\n5,6,x\n";
    NewDataset dataset;
    dataset.project = "default";
    dataset.id = id;
    dataset.digest = sha256_hex(id);
    dataset.spec.add_sources()->set_sha256(add_upload(csv));
    dataset.spec.mutable_csv()->set_target("label");
    ASSERT_TRUE(store_->datasets().create(dataset).ok());
    IngestRequest request;
    request.format = "csv";
    request.sources = {{"data", paths_.upload(sha256_hex(csv))}};
    request.csv.target = "label";
    const auto schema = ingest(request, paths_.dataset(dataset.digest), local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
    ASSERT_TRUE(answer_of(store_->datasets(), &DatasetStore::set_ready, dataset.digest,
                          to_proto(*schema), 1)
                    .ok());
  }
  Job start_job(const std::string& id) {
    const Result<Job> job = store_->jobs().submit(new_job(id));
    EXPECT_TRUE(job.ok());
    return *store_->jobs().start_attempt(job->uid, {"devices/cpu"}, "n", "R", "m");
  }
  void update(const Job& job, AttemptUpdate update) {
    update.job_uid = job.uid;
    update.attempt = 1;
    const auto done = answer_of(store_->jobs(), &JobStore::update_attempt, std::move(update));
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  void add_checkpoint(const Job& job, int64_t step) {
    CheckpointState state;
    state.step = step;
    state.extra_json = "{}";
    const float value = 1;
    const TensorView tensor{"w", {Shape({1}), DType::kF32}, std::as_bytes(std::span(&value, 1))};
    ASSERT_TRUE(save_checkpoint(local_files(), paths_.checkpoints(job.uid), state,
                                std::span(&tensor, 1), {})
                    .ok());
    AttemptUpdate event;
    event.events.emplace_back().mutable_checkpoint()->set_step(step);
    update(job, event);
  }
  Job add_model(const std::string& id) {
    const Job job = start_job(id);
    AttemptUpdate begun;
    begun.move = Move{JobState::kRunning, "R", "m"};
    update(job, begun);
    AttemptUpdate end;
    end.move = Move{JobState::kSucceeded, "COMPLETED", "m"};
    end.model = NewModel{sha256_hex("weights"), 7, 1, {}};
    update(job, end);
    write(paths_.model(job.uid) / "model.safetensors", "weights");
    write(paths_.model(job.uid) / "model.json", "{}");
    return job;
  }

  /// Returns the lines of the check's output that do not say "ok", after the daemon has ended.
  std::string findings() {
    store_.reset();
    const auto before = contents();
    std::string text;
    const auto line = [&](const std::string& l) {
      if (l.find("  ok  ") == std::string::npos && l.find(" ok  ") == std::string::npos) {
        text += l + "\n";
      }
    };
    const Result<StateCheck> result = check_state(state_, line, [](const std::string&) {});
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (result.ok()) damaged_ = result->damaged;
    EXPECT_EQ(contents(), before) << "a check changes nothing";
    return text;
  }
  std::map<std::string, std::pair<std::string, fs::file_time_type>> contents() const {
    std::map<std::string, std::pair<std::string, fs::file_time_type>> all;
    for (const auto& entry : fs::recursive_directory_iterator(state_)) {
      std::stringstream text;
      if (entry.is_regular_file()) text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      all[entry.path().string()] = {text.str(), entry.last_write_time()};
    }
    return all;
  }
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
    }
  }

  int64_t damaged_ = -1;
};

TEST_F(StateChecked, AnIntactStatePasses) {
  add_dataset("digits");
  add_model("model-a");
  add_checkpoint(start_job("job-a"), 100);
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(damaged_, 0);
}

TEST_F(StateChecked, ADamagedDatasetIsNamed) {
  add_dataset("digits");
  const fs::path data = paths_.dataset(sha256_hex("digits")) / "data.safetensors";
  flip_byte(data, static_cast<int64_t>(fs::file_size(data)) - 1);
  expect_words(findings(), {"dataset  damaged", "digits@1", "digest", "backup", "delete"});
  EXPECT_EQ(damaged_, 1);
}

TEST_F(StateChecked, ADamagedAndAMissingModelAreNamed) {
  const Job a = add_model("model-a");
  const Job b = add_model("model-b");
  flip_byte(paths_.model(a.uid) / "model.safetensors", 3);
  fs::remove_all(paths_.model(b.uid));
  const std::string text = findings();
  expect_words(text, {"model    damaged  model-a:", "SHA-256", "model-b:", "missing", "train it"});
  EXPECT_GE(damaged_, 2);
}

TEST_F(StateChecked, ADamagedCheckpointIsNamedWithWhatTheJobDoesNext) {
  const Job job = start_job("job-a");
  add_checkpoint(job, 100);
  add_checkpoint(job, 200);
  const fs::path newest = paths_.checkpoints(job.uid) / "step-000000200";
  flip_byte(newest / "weights.safetensors",
            static_cast<int64_t>(fs::file_size(newest / "weights.safetensors")) - 1);
  expect_words(findings(),
               {"job      damaged  job-a:", "step-000000200", "digest", "resumes from step 100"});
  EXPECT_EQ(damaged_, 1);
}

// The worker of a cancelled job may have been killed while it removed an old checkpoint.
TEST_F(StateChecked, AHalfRemovedCheckpointOfAnEndedJobIsNoDamage) {
  const Job job = start_job("job-a");
  add_checkpoint(job, 100);
  add_checkpoint(job, 200);
  AttemptUpdate end;
  end.move = Move{JobState::kFailed, "R", "m"};
  update(job, end);
  fs::remove(paths_.checkpoints(job.uid) / "step-000000100" / "weights.safetensors");
  expect_words(findings(), {"files    unused", "step-000000100", "the next start finishes it"});
  EXPECT_EQ(damaged_, 0);
}

TEST_F(StateChecked, AMissingCheckpointIsNamed) {
  const Job job = start_job("job-a");
  add_checkpoint(job, 100);
  fs::remove_all(paths_.checkpoints(job.uid));
  expect_words(findings(), {"job-a:", "step 100 is missing", "starts over"});
}

TEST_F(StateChecked, ADamagedUploadIsNamedWithItsUse) {
  const std::string sha256 = add_upload("weights of a model");
  NewWeights weights;
  weights.project = "default";
  weights.project = "default";
  weights.id = "w-imported";
  weights.sha256 = sha256;
  ASSERT_TRUE(answer_of(store_->models(), &ModelStore::create, weights).ok());
  flip_byte(paths_.upload(sha256), 2);
  expect_words(findings(), {"upload   damaged  model w-imported", sha256, "upload it again"});
}

TEST_F(StateChecked, UnreferencedFilesAreCounted) {
  write(paths_.dataset("stray") / "data.safetensors", std::string(5000, 'x'));
  write(paths_.upload("left.5.part"), "half");
  expect_words(findings(), {"files    unused  datasets/stray, 4.88 KiB", "uploads/left.5.part"});
  EXPECT_EQ(damaged_, 0) << "they cost space and lose nothing";
}

TEST_F(StateChecked, ADamagedPageOfTheStoreIsFound) {
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(store_->jobs().submit(new_job()).ok());
  store_.reset();
  const fs::path db = store_path(state_);
  for (int64_t page = 3; page * 4096 < static_cast<int64_t>(fs::file_size(db)); ++page) {
    std::fstream file(db, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(page * 4096);
    file << std::string(64, '\x7f');
  }
  expect_words(findings(), {"store    damaged", "backup"});
  EXPECT_GT(damaged_, 0);
}

TEST_F(StateChecked, TheLogOfAKilledDaemonIsReadAndALostLogIsFound) {
  ASSERT_TRUE(store_->jobs().submit(new_job("job-a")).ok());
  const fs::path copy = folder_.path() / "copy";
  fs::copy(state_, copy, fs::copy_options::recursive);  // as after a power cut
  fs::remove(copy / "trainyard.db-shm");
  std::string text;
  const auto line = [&](const std::string& l) { text += l + "\n"; };
  auto result = check_state(copy, line, line);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->damaged, 0) << text;
  EXPECT_TRUE(fs::exists(copy / "trainyard.db-wal"));
  EXPECT_FALSE(fs::exists(copy / "trainyard.db-shm")) << "a check leaves nothing";

  fs::resize_file(copy / "trainyard.db-wal", 0);
  result = check_state(copy, line, line);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->damaged, 1);
  expect_words(text, {"STORE_COMMITS_LOST"});

  fs::remove(copy / "trainyard.db-wal");
  result = check_state(copy, line, line);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->damaged, 1);
  expect_words(text, {"STORE_WAL_MISSING"});
  EXPECT_FALSE(fs::exists(copy / "trainyard.db-wal"));
}

TEST_F(StateChecked, AStoreOfAnEarlierVersionIsNotCalledDamaged) {
  store_.reset();
  {
    Connection db(store_path(state_), Connection::Mode::kReadWrite, 0);
    db.execute("PRAGMA user_version = 1");
  }
  expect_words(findings(), {"store    older  schema 1"});
  EXPECT_EQ(damaged_, 0);
}

TEST_F(StateChecked, ACopyFromBeforeAnUpgradeIsAcceptedAndADamagedOneIsNamed) {
  add_model("model-a");
  const Job lost = start_job("since");  // a job that only a store that was set aside knows
  write(paths_.job(lost.uid) / "notes", "x");
  store_.reset();
  const int before = newest_schema_version() - 1;
  const fs::path copy = state_ / ("trainyard.db.schema-" + std::to_string(before));
  {
    Connection db(store_path(state_), Connection::Mode::kReadWrite, 0);
    db.execute(("VACUUM INTO '" + copy.string() + "'").c_str());
    db.execute("DELETE FROM jobs WHERE id = 'since'");
    Connection(copy, Connection::Mode::kReadWrite, 0)
        .execute(("PRAGMA user_version = " + std::to_string(before)).c_str());
  }
  EXPECT_EQ(findings(), "") << "what only the copy names is not unused";
  EXPECT_EQ(damaged_, 0);
  std::string all;
  ASSERT_TRUE(check_state(
                  state_, [&](const std::string& l) { all += l; }, [](const auto&) {})
                  .ok());
  expect_words(all, {"copy     ok", copy.filename().string(), "--undo-upgrade"});

  flip_byte(copy, 3);
  expect_words(findings(), {"copy     damaged", copy.filename().string(), "remove it"});
  EXPECT_EQ(damaged_, 1);
  fs::remove(copy);
  expect_words(findings(), {"files    unused  jobs/" + lost.uid});
}

TEST_F(StateChecked, AFolderInUseIsRefusedAndAMissingOneIsNotCreated) {
  const auto line = [](const std::string&) {};
  const auto busy = check_state(state_, line, line);
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().reason, "STATE_DIR_LOCKED");
  const auto none = check_state(folder_.path() / "none", line, line);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_store);
  EXPECT_FALSE(fs::exists(folder_.path() / "none"));
}

}  // namespace
}  // namespace trainyard::server
