// The daemon takes from a sandboxed worker only folders and files of its own, and gives each task
// the restrictions that it needs.
#include "server/processes/scratch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/processes/worker_sandbox.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "scratch.XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    fs::create_directories(made() / "part");
    std::ofstream(made() / "part" / "data") << "rows";
    std::ofstream(root_ / "store") << "secret";
  }
  ~Scratch() override { fs::remove_all(root_); }
  fs::path made() const { return root_ / "scratch/dataset"; }
  fs::path place() const { return root_ / "datasets"; }
  std::string taken() const {
    const Status s = take_result(local_files(), made(), place());
    return s.ok() ? "" : s.error().reason;
  }
  fs::path root_;
};

TEST_F(Scratch, AResultReplacesWhatIsInItsPlace) {
  fs::create_directories(place() / "old");
  EXPECT_EQ(taken(), "");
  EXPECT_TRUE(fs::exists(place() / "part/data"));
  EXPECT_FALSE(fs::exists(place() / "old"));
  EXPECT_EQ(taken(), "") << "it was taken already";
  EXPECT_TRUE(fs::exists(place() / "part/data"));
}

TEST_F(Scratch, AResultWithALinkIsNotTaken) {
  fs::create_symlink(root_ / "store", made() / "part" / "link");
  EXPECT_EQ(taken(), "WORKER_PROTOCOL_ERROR");
  fs::remove(made() / "part" / "link");
  fs::create_hard_link(root_ / "store", made() / "part" / "link");
  EXPECT_EQ(taken(), "WORKER_PROTOCOL_ERROR");
  fs::remove(made() / "part" / "link");
  fs::rename(made(), root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", made());
  EXPECT_EQ(taken(), "WORKER_PROTOCOL_ERROR");
  EXPECT_FALSE(fs::exists(place()));
}

TEST_F(Scratch, ANewScratchFolderIsEmpty) {
  ASSERT_TRUE(make_scratch(local_files(), root_ / "scratch").ok());
  EXPECT_TRUE(fs::is_empty(root_ / "scratch"));
}

TEST(WorkerSandbox, OnlyIngestsThatLearnATokenizerMayStartIt) {
  v1::DatasetSpec spec;
  EXPECT_FALSE(learns_tokenizer(spec));
  spec.mutable_csv()->set_tokenizer(v1::WORD);
  EXPECT_FALSE(learns_tokenizer(spec));
  spec.mutable_csv()->set_tokenizer(v1::UNIGRAM);
  EXPECT_TRUE(learns_tokenizer(spec));
  spec.mutable_text()->set_tokenizer(v1::BPE);
  EXPECT_TRUE(learns_tokenizer(spec));
  spec.mutable_idx();
  EXPECT_FALSE(learns_tokenizer(spec));
}

TEST(WorkerSandbox, GpusHaveNone) {
  EXPECT_EQ(computing_sandbox("devices/gpu-0").profile(), v1::WorkerSandbox::NONE);
  EXPECT_EQ(computing_sandbox("devices/cpu").profile(), v1::WorkerSandbox::COMPUTE);
}

TEST(WorkerSandbox, TrainingIsLimitedByItsPlan) {
  constexpr int64_t kPlanned = int64_t{5} << 30;
  const v1::WorkerSandbox sandbox = training_sandbox("/state/jobs/a", kPlanned);
  EXPECT_EQ(sandbox.profile(), v1::WorkerSandbox::TRAIN);
  EXPECT_EQ(sandbox.memory_bytes(), int64_t{12} << 30);
  EXPECT_EQ(sandbox.file_bytes(), int64_t{11} << 30);
  ASSERT_EQ(sandbox.writable_size(), 1);
  EXPECT_EQ(sandbox.writable(0), "/state/jobs/a");
}

TEST(WorkerSandbox, OnlyTheServersOwnFilesAreSources) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_sha256("ab");
  spec.add_sources()->set_server_path("/data/rows.csv");
  v1::WorkerSandbox sandbox = parsing_sandbox();
  add_server_sources(sandbox, spec);
  ASSERT_EQ(sandbox.sources_size(), 1);
  EXPECT_EQ(sandbox.sources(0), "/data/rows.csv");
  EXPECT_GT(sandbox.memory_bytes(), 0);
}

}  // namespace
}  // namespace trainyard::server
