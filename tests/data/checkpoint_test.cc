// The tests fail if at some moment no checkpoint can be loaded (I6), a damaged checkpoint is loaded
// (F21), or pruning removes the last good checkpoint.
#include "src/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/data/faulty_files.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/no_descriptors.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

struct Sample {
  explicit Sample(int64_t step, float extra = 0) {
    state = {step, 0xfedcba9876543210u, 2, "cpu", std::string(64, 'a'), R"({"best":0.5})"};
    for (int i = 0; i < 300; ++i) w.push_back(static_cast<float>(step) + static_cast<float>(i));
    w.push_back(extra);
    m.assign(w.begin(), w.end());
  }
  std::vector<TensorView> weights() const {
    return {{"dense1.weight", {{7, 43}, DType::kF32}, std::as_bytes(std::span(w))}};
  }
  std::vector<TensorView> optimizer() const {
    return {{"dense1.weight.m", {{7, 43}, DType::kF32}, std::as_bytes(std::span(m))},
            {"step", {{}, DType::kI64}, std::as_bytes(std::span(&state.step, 1))}};
  }
  CheckpointState state;
  std::vector<float> w, m;
};

UnsyncedFiles quick;  // NewestLoadsAsItWasSaved also uses the real file system

Result<fs::path> save(Files& files, const fs::path& folder, const Sample& s) {
  return save_checkpoint(files, folder, s.state, s.weights(), s.optimizer());
}

bool loads_as(const fs::path& folder, const Sample& s) {
  const auto loaded = load_newest_checkpoint(folder, nullptr);
  if (!loaded.ok() || loaded->state != s.state) return false;
  const TensorView* w = loaded->weights.find("dense1.weight");
  const TensorView* m = loaded->optimizer.find("dense1.weight.m");
  return w != nullptr && m != nullptr &&
         std::ranges::equal(w->bytes, std::as_bytes(std::span(s.w))) &&
         std::ranges::equal(m->bytes, std::as_bytes(std::span(s.m)));
}

int entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Checkpoint, NewestLoadsAsItWasSaved) {
  const TemporaryFolder folder;
  EXPECT_EQ(load_newest_checkpoint(folder / "none", nullptr).error().reason,
            "CHECKPOINT_NOT_FOUND");
  const fs::path checkpoints = folder.path() / "a" / "b";
  const Sample first(300), second(2000000000);  // has more digits than a zero-padded name
  ASSERT_TRUE(save(local_files(), checkpoints, first).ok());
  EXPECT_TRUE(loads_as(checkpoints, first));
  const auto path = save(local_files(), checkpoints, second);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->filename(), "step-2000000000");
  EXPECT_TRUE(loads_as(checkpoints, second));
}

// F18, F19, F20: at every operation and with every way to fail, a complete checkpoint remains.
TEST(CheckpointF18, EveryFailingOperationLeavesAGoodCheckpoint) {
  using Mode = FaultyFiles::Mode;
  const Sample old_sample(100), new_sample(200), same_step(100, 7);
  for (const Sample* next : {&new_sample, &same_step}) {
    for (const Mode mode : {Mode::kBefore, Mode::kAfter, Mode::kCrash}) {
      int fail_at = 0;
      for (;; ++fail_at) {
        const TemporaryFolder folder;
        ASSERT_TRUE(save(quick, folder.path(), old_sample).ok());
        FaultyFiles files(fail_at, mode);
        const auto saved = save(files, folder.path(), *next);
        if (files.operations() <= fail_at) break;  // no operation failed
        EXPECT_TRUE(loads_as(folder.path(), *next) ||
                    (!saved.ok() && loads_as(folder.path(), old_sample)))
            << "operation " << fail_at;
        if (!saved.ok()) {
          EXPECT_EQ(saved.error().reason, "STORAGE_FULL");
        }
        if (mode != Mode::kCrash) {  // the failed save has removed its temporary folder
          for (const auto& entry : fs::directory_iterator(folder.path())) {
            EXPECT_FALSE(!saved.ok() && entry.path().extension() == ".tmp")
                << entry.path() << " after operation " << fail_at;
          }
        }
        // The next save and a pruning repair everything.
        ASSERT_TRUE(save(quick, folder.path(), *next).ok());
        EXPECT_TRUE(loads_as(folder.path(), *next));
        prune_checkpoints(quick, folder.path(), {.newest = 1});
        EXPECT_TRUE(loads_as(folder.path(), *next));
        EXPECT_EQ(entries(folder.path()), 1);
      }
      EXPECT_GT(fail_at, 5);
    }
  }
}

/// Records the directories with entries that a power failure would lose.
class DirectorySyncs final : public Files {
 public:
  Status write_file(const fs::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    unsynced.insert(path.parent_path());
    return quick.write_file(path, parts);
  }
  Result<std::unique_ptr<FileFiller>> create_file(const fs::path& path, int64_t bytes) override {
    unsynced.insert(path.parent_path());
    return quick.create_file(path, bytes);
  }
  Status rename_durable(const fs::path& from, const fs::path& to) override {
    EXPECT_FALSE(unsynced.contains(from)) << from << " gets its name before it has its files";
    unsynced.erase(to.parent_path());
    return quick.rename_durable(from, to);
  }
  Status sync_directory(const fs::path& directory) override {
    unsynced.erase(directory);
    return quick.sync_directory(directory);
  }
  Status create_directories(const fs::path& directory) override {
    for (fs::path p = directory; !fs::exists(p); p = p.parent_path()) {
      unsynced.insert(p.parent_path());
    }
    return quick.create_directories(directory);
  }
  Status link_file(const fs::path& from, const fs::path& to) override {
    unsynced.insert(to.parent_path());
    return quick.link_file(from, to);
  }
  Status remove_all(const fs::path& path) override { return quick.remove_all(path); }

  std::set<fs::path> unsynced;
};

TEST(CheckpointF20, APowerCutAfterASaveLosesNoFile) {
  const TemporaryFolder folder;
  DirectorySyncs files;
  for (const Sample& sample : {Sample(100), Sample(200), Sample(200, 7)}) {
    ASSERT_TRUE(save(files, folder / "a/b", sample).ok());
    EXPECT_EQ(files.unsynced, std::set<fs::path>());
  }
}

// The regular folder is damaged, and an older copy of the same step still exists.
TEST(CheckpointF18, ADamagedCheckpointNeverReplacesAnIntactOne) {
  const Sample sample(100);
  for (int fail_at = 0;; ++fail_at) {
    const TemporaryFolder folder;
    const fs::path path = save(quick, folder.path(), sample).value();
    fs::copy(path, path.string() + ".old");
    fs::resize_file(path / "weights.safetensors", 10);
    ASSERT_TRUE(loads_as(folder.path(), sample));
    FaultyFiles files(fail_at, FaultyFiles::Mode::kCrash);
    (void)save(files, folder.path(), sample);
    EXPECT_TRUE(loads_as(folder.path(), sample)) << "operation " << fail_at;
    if (files.operations() <= fail_at) break;
  }
}

// F21: each file in turn is truncated at every 64 bytes, and has every byte flipped.
TEST(CheckpointF21, DamagedCheckpointIsSkippedForThePrevious) {
  const TemporaryFolder folder;
  const Sample good(100), bad(200);
  ASSERT_TRUE(save(quick, folder.path(), good).ok());
  const fs::path damaged_path = save(quick, folder.path(), bad).value();
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    const fs::path path = damaged_path / name;
    const std::string whole = read_file(path, 1 << 20).value();
    const auto expect_skipped = [&](const std::string& content, size_t at) {
      std::ofstream(path, std::ios::binary) << content;
      std::vector<fs::path> damaged;
      const auto loaded = load_newest_checkpoint(folder.path(), &damaged);
      ASSERT_TRUE(loaded.ok()) << name << " at " << at;
      EXPECT_EQ(loaded->state.step, 100) << name << " at " << at;
      EXPECT_EQ(damaged, std::vector<fs::path>{damaged_path});
    };
    for (size_t size = 0; size < whole.size(); size += 64) {
      expect_skipped(whole.substr(0, size), size);
    }
    expect_skipped(whole + " ", whole.size());
    for (size_t i = 0; i < whole.size(); i += 7) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
      expect_skipped(flipped, i);
    }
    std::ofstream(path, std::ios::binary) << whole;
    EXPECT_EQ(load_newest_checkpoint(folder.path(), nullptr).value().state.step, 200);
  }
}

TEST(CheckpointF33, AMissingPartIsSkippedForThePrevious) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(quick, folder.path(), Sample(100)).ok());
  const fs::path partial = save(quick, folder.path(), Sample(200)).value();
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(partial / name, 1 << 20).value();
    fs::remove(partial / name);
    std::vector<fs::path> damaged;
    EXPECT_EQ(load_newest_checkpoint(folder.path(), &damaged).value().state.step, 100) << name;
    EXPECT_EQ(damaged, std::vector<fs::path>{partial}) << name;
    std::ofstream(partial / name, std::ios::binary) << whole;
    EXPECT_EQ(load_newest_checkpoint(folder.path(), nullptr).value().state.step, 200) << name;
  }
}

TEST(CheckpointF21, DataLossOnlyWhenNoneIsLeft) {
  const TemporaryFolder folder;
  const fs::path path = save(quick, folder.path(), Sample(5)).value();
  std::ofstream(path / "weights.safetensors", std::ios::app) << 'x';
  const auto loaded = load_newest_checkpoint(folder.path(), nullptr);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kDataLoss);
}

// For a temporary fault, loading an older checkpoint would cost the steps between, and loading none
// would cost the whole job.
TEST(CheckpointF21, AnUnreadableCheckpointIsNotReportedAsDamaged) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(quick, folder.path(), Sample(100)).ok());
  const fs::path newest = save(quick, folder.path(), Sample(200)).value();
  {
    const testing::NoDescriptors none;
    EXPECT_EQ(load_newest_checkpoint(folder.path(), nullptr).error().reason, "STORAGE_ERROR");
  }
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    fs::rename(newest / name, folder / "away");
    fs::create_symlink(newest / name, newest / name);  // opening it fails, even for root
    std::vector<fs::path> damaged;
    EXPECT_EQ(load_newest_checkpoint(folder.path(), &damaged).error().reason, "STORAGE_ERROR")
        << name;
    EXPECT_TRUE(damaged.empty());
    fs::rename(folder / "away", newest / name);
  }
  EXPECT_EQ(load_newest_checkpoint(folder.path(), nullptr).value().state.step, 200);
}

TEST(Checkpoint, PruneKeepsTheNewestIntactOnes) {
  const TemporaryFolder folder;
  for (const int64_t step : {1, 2, 3, 4}) {
    ASSERT_TRUE(save(quick, folder.path(), Sample(step)).ok());
  }
  fs::create_directory(folder / "step-000000009.tmp");
  std::ofstream(folder / "step-000000004/weights.safetensors", std::ios::app) << 'x';
  folder.write("notes.txt", "not ours");
  prune_checkpoints(quick, folder.path(), {.newest = 2});
  EXPECT_TRUE(fs::exists(folder / "step-000000002"));
  EXPECT_TRUE(fs::exists(folder / "step-000000003"));
  EXPECT_FALSE(fs::exists(folder / "step-000000001"));
  EXPECT_FALSE(fs::exists(folder / "step-000000009.tmp"));
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));
  prune_checkpoints(quick, folder.path(), {.newest = 0});  // but at least one stays
  EXPECT_TRUE(loads_as(folder.path(), Sample(3)));
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const CheckpointFolder& c : list_checkpoints(folder)) steps.push_back(c.step);
  return steps;
}

/// Deletes one file of a folder, as a process does that is killed while it removes the folder.
class HalfRemoving final : public UnsyncedFiles {
 public:
  Status remove_all(const fs::path& path) override {
    std::error_code ec;
    if (!fs::remove(path / "optimizer.safetensors", ec)) return {};
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "killed");
  }
};

// A worker that was killed while it removed an old checkpoint left half of it for ever.
TEST(Checkpoint, AnInterruptedRemovalLeavesNoHalfOfACheckpoint) {
  const TemporaryFolder folder;
  for (const int64_t step : {2, 4}) ASSERT_TRUE(save(quick, folder.path(), Sample(step)).ok());
  HalfRemoving killed;
  prune_checkpoints(killed, folder.path(), {.newest = 1});
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{4}));
  EXPECT_EQ(entries(folder.path()), 2) << "and what was not removed";
  ASSERT_TRUE(save(killed, folder.path(), Sample(4)).ok());
  for (const CheckpointFolder& c : list_checkpoints(folder.path())) {
    EXPECT_TRUE(verify_checkpoint(c).ok()) << c.path;
  }
  prune_checkpoints(quick, folder.path(), {.newest = 1});
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(Checkpoint, PruneKeepsEveryNthAndTheBestBesideTheNewest) {
  using Steps = std::vector<int64_t>;
  const TemporaryFolder folder;
  for (const int64_t step : {2, 3, 4, 6, 8, 9, 10, 12}) {
    ASSERT_TRUE(save(quick, folder.path(), Sample(step)).ok());
  }
  prune_checkpoints(quick, folder.path(), {.newest = 2, .every_steps = 4, .best_step = 3});
  EXPECT_EQ(steps_in(folder.path()), (Steps{12, 10, 8, 4, 3}));
  prune_checkpoints(quick, folder.path(), {.newest = 1, .every_steps = 0, .best_step = 8});
  EXPECT_EQ(steps_in(folder.path()), (Steps{12, 8}));
  prune_checkpoints(quick, folder.path(), {.newest = 1, .every_steps = 5, .best_step = 7});
  EXPECT_EQ(steps_in(folder.path()), (Steps{12})) << "the best is not here: nothing stands for it";
}

// A worker created a state folder anew that had been moved away, and wrote checkpoints there.
TEST(Checkpoint, AFolderThatWasMovedAwayIsRefused) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder / "state/jobs/1/checkpoints";
  fs::create_directories(checkpoints.parent_path());
  EXPECT_TRUE(check_parent_exists(checkpoints).ok()) << "the folder itself is created";
  EXPECT_TRUE(check_parent_exists("checkpoints").ok());
  fs::rename(folder / "state", folder / "moved");
  EXPECT_EQ(check_parent_exists(checkpoints).error().reason, "STORAGE_ERROR");
}

TEST(Checkpoint, OfStepZeroIsPrunedLikeTheOthers) {
  const TemporaryFolder folder;
  for (const int64_t step : {0, 4, 6}) ASSERT_TRUE(save(quick, folder.path(), Sample(step)).ok());
  prune_checkpoints(quick, folder.path(), {.newest = 1, .every_steps = 4, .best_step = 0});
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{6, 4}));
}

TEST(Checkpoint, DamagedOnesDoNotCountAmongTheNewest) {
  const TemporaryFolder folder;
  for (const int64_t step : {4, 6, 8}) ASSERT_TRUE(save(quick, folder.path(), Sample(step)).ok());
  std::ofstream(folder / "step-000000008/weights.safetensors", std::ios::app) << 'x';
  prune_checkpoints(quick, folder.path(), {.newest = 1, .every_steps = 8});
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{8, 6}));
  EXPECT_TRUE(loads_as(folder.path(), Sample(6)));
}

TEST(Checkpoint, WithAStepOtherThanItsNameIsNotLoaded) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(quick, folder.path(), Sample(100)).ok());
  fs::rename(save(quick, folder.path(), Sample(7)).value(), folder / "step-000000200");
  EXPECT_TRUE(loads_as(folder.path(), Sample(100)));
}

TEST(Checkpoint, OtherNamesAreNotCheckpoints) {
  const TemporaryFolder folder;
  for (const char* name : {"step-", "step-5", "step-00000000x", "step-000000005.bak", "x"}) {
    fs::create_directory(folder / name);
  }
  EXPECT_EQ(load_newest_checkpoint(folder.path(), nullptr).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace trainyard
