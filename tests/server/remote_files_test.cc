// Tests of the files that a remote worker may read and push: forbidden names, partial pushes, and
// the keys with which the worker is admitted.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "server/files/worker_files.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "server/rpc/worker_endpoint.h"
#include "src/base/check.h"
#include "src/base/sha256.h"
#include "src/checkpoint/checkpoint.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class Owner final : public TaskOwner {
 public:
  Result<v1::Assignment> assignment() override { return v1::Assignment(); }
  void report(const v1::WorkerReport&, Done<void> done) override { done({}); }
  void ended(const TaskEnd&, TaskHold) override {}
  Result<FileGrant> grant() override { return granted; }
  FileGrant granted;
};

class RemoteWorkerFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("files" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "dataset/sub");
    std::ofstream(root_ / "dataset/schema.json") << "{}";
    std::ofstream(root_ / "dataset/sub/rows") << "0123456789";
    std::ofstream(root_ / "secret") << "nobody's";
    std::ofstream(root_ / "initial") << "weights";
    FileGrant& grant = owner_->granted;
    grant.dataset = root_ / "dataset";
    grant.initial_weights = root_ / "initial";
    grant.checkpoints = root_ / "job/checkpoints";
    grant.model = root_ / "models/uid";
    grant.push_bytes_max = 1 << 20;
    fs::create_directories(grant.checkpoints);
    fs::create_directories(root_ / "models");
    SupervisorOptions options;
    options.log_dir = root_;
    supervisor_ = std::make_unique<Supervisor>(options);
    supervisor_->add_remote({"t1", "test", owner_, "", sha256_hex("nonce"), 60'000, {}});
    disk_ = std::make_unique<DiskWatch>(root_, 1000, [this](const fs::path&) { return free_; });
    files_ = std::make_unique<WorkerFiles>(*supervisor_, local_files(), *disk_);
  }
  void TearDown() override {
    supervisor_.reset();
    fs::remove_all(root_);
  }

  std::string read(v1::FileSet set, const std::string& name, int64_t offset = 0, int64_t step = 0,
                   const std::string& nonce = "nonce") {
    v1::PullFileRequest request;
    request.set_task("t1");
    request.set_nonce(nonce);
    request.set_set(set);
    request.set_name(name);
    request.set_step(step);
    request.set_offset(offset);
    const Result<UniqueFd> file = files_->open(request);
    if (!file.ok()) return file.error().reason;
    char buffer[100];
    const ssize_t n = ::read(file->get(), buffer, sizeof buffer);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))};
  }
  v1::ListFilesResponse list(v1::FileSet set) {
    v1::ListFilesRequest request;
    request.set_task("t1");
    request.set_nonce("nonce");
    request.set_set(set);
    Result<v1::ListFilesResponse> listed = files_->list(request);
    EXPECT_TRUE(listed.ok()) << listed.error().message;
    return std::move(listed).value();
  }

  /// Creates a checkpoint as a worker does and returns its files' bytes by name.
  std::map<std::string, std::string> make_checkpoint(int64_t step, float value = 1) {
    const std::array<float, 4> numbers = {value, 2, 3, 4};
    const std::vector<TensorView> tensors = {
        {"w", {{4}, DType::kF32}, std::as_bytes(std::span(numbers))}};
    CheckpointState state;
    state.step = step;
    state.threads = 1;
    state.backend = "cpu";
    const auto path = save_checkpoint(local_files(), root_ / "theirs", state, tensors, tensors);
    EXPECT_TRUE(path.ok());
    std::map<std::string, std::string> files;
    for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
      files[name] = *read_file(*path / name, 1 << 20);
    }
    return files;
  }
  static v1::PushFilesRequest::Start start_of(v1::FileSet set, int64_t step,
                                              const std::map<std::string, std::string>& files) {
    v1::PushFilesRequest::Start start;
    start.set_task("t1");
    start.set_nonce("nonce");
    start.set_set(set);
    start.set_step(step);
    for (const auto& [name, bytes] : files) {
      v1::RemoteFile& file = *start.add_files();
      file.set_name(name);
      file.set_size_bytes(static_cast<int64_t>(bytes.size()));
      file.set_sha256(sha256_hex(bytes));
    }
    return start;
  }
  static std::string joined(const std::map<std::string, std::string>& files) {
    std::string all;
    for (const auto& [name, bytes] : files) all += bytes;
    return all;
  }
  std::string refusal(const v1::PushFilesRequest::Start& start) {
    const auto push = files_->begin_push(start);
    return push.ok() ? "" : push.error().reason;
  }
  /// Pushes `bytes` from the offset in `start` on. Returns the reason of a refusal, else "".
  std::string push(const v1::PushFilesRequest::Start& start, std::string_view bytes,
                   bool finishes = true) {
    auto push = files_->begin_push(start);
    if (!push.ok()) return push.error().reason;
    for (size_t at = 0; at < bytes.size(); at += 7) {
      if (Status s = (*push)->append(bytes.substr(at, 7)); !s.ok()) return s.error().reason;
    }
    if (!finishes) return "";
    const Status s = (*push)->finish();
    return s.ok() ? "" : s.error().reason;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const CheckpointFolder& c : list_checkpoints(owner_->granted.checkpoints)) {
      EXPECT_TRUE(verify_checkpoint(c).ok());
      steps.push_back(c.step);
    }
    return steps;
  }

  fs::path root_;
  std::optional<int64_t> free_ = int64_t{1} << 40;
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<DiskWatch> disk_;
  std::unique_ptr<WorkerFiles> files_;
};

TEST_F(RemoteWorkerFiles, TheListNamesTheReadableFiles) {
  const v1::ListFilesResponse listed = list(v1::FILE_SET_DATASET);
  ASSERT_EQ(listed.files_size(), 2);
  EXPECT_EQ(listed.files(1).name(), "sub/rows");
  EXPECT_EQ(listed.files(1).size_bytes(), 10);
  EXPECT_EQ(listed.files(1).sha256(), sha256_hex("0123456789"));
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows"), "0123456789");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows", 7), "789");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows", 10), "");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows", 11), "OFFSET_INVALID");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows", -1), "OFFSET_INVALID");
  EXPECT_EQ(read(v1::FILE_SET_INITIAL, "initial"), "weights");
  // A changed file is hashed again.
  std::ofstream(root_ / "dataset/sub/rows") << "012345678987";
  EXPECT_EQ(list(v1::FILE_SET_DATASET).files(1).sha256(), sha256_hex("012345678987"));
}

TEST_F(RemoteWorkerFiles, NamesOutsideTheFolderAreUnknown) {
  for (const char* name : {"../secret", "/etc/passwd", "sub/../../secret", "", ".", "sub",
                           "./schema.json", "sub//rows", "schema.json/"}) {
    EXPECT_EQ(read(v1::FILE_SET_DATASET, name), "FILE_NOT_FOUND") << name;
    EXPECT_EQ(read(v1::FILE_SET_INITIAL, name), "FILE_NOT_FOUND") << name;
    EXPECT_EQ(read(v1::FILE_SET_RESUME, name, 0, 3), "FILE_NOT_FOUND") << name;
  }
  EXPECT_EQ(read(v1::FILE_SET_RESUME, "state.json", 0, 3), "FILE_NOT_FOUND");
  EXPECT_EQ(read(v1::FILE_SET_MODEL, "model.json"), "FIELD_INVALID");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "schema.json", 0, 0, "another"), "ATTEMPT_FENCED");

  auto files = make_checkpoint(3);
  files["../../escaped"] = "x";
  EXPECT_EQ(refusal(start_of(v1::FILE_SET_CHECKPOINT, 3, files)), "FIELD_INVALID");
  files.erase("../../escaped");
  EXPECT_EQ(refusal(start_of(v1::FILE_SET_CHECKPOINT, -1, files)), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(refusal(start_of(v1::FILE_SET_DATASET, 3, files)), "FIELD_INVALID");
  files.erase("state.json");
  EXPECT_EQ(refusal(start_of(v1::FILE_SET_CHECKPOINT, 3, files)), "FIELD_REQUIRED");
  EXPECT_TRUE(fs::is_empty(owner_->granted.checkpoints));
}

// Fails if a single read lists the whole folder, since a listing would find and open the pipe.
TEST_F(RemoteWorkerFiles, AFileIsFoundWithoutAListOfTheOthers) {
  ASSERT_EQ(::mkfifo((root_ / "dataset/pipe").c_str(), 0600), 0);
  std::ofstream(root_ / "dataset/.hidden") << "nobody's";
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "sub/rows"), "0123456789");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, "pipe"), "FILE_NOT_FOUND") << "and nobody waits for it";
  EXPECT_EQ(read(v1::FILE_SET_DATASET, ".hidden"), "FILE_NOT_FOUND");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, std::string("sub/rows\0x", 10)), "FILE_NOT_FOUND");
  EXPECT_EQ(read(v1::FILE_SET_DATASET, std::string(5000, 'a')), "FILE_NOT_FOUND");
}

TEST_F(RemoteWorkerFiles, AnUploadedCheckpointIsLikeAnyOther) {
  const auto files = make_checkpoint(30);
  EXPECT_EQ(push(start_of(v1::FILE_SET_CHECKPOINT, 30, files), joined(files)), "");
  EXPECT_EQ(steps(), std::vector<int64_t>{30});
  const v1::ListFilesResponse listed = list(v1::FILE_SET_RESUME);
  EXPECT_EQ(listed.step(), 30);
  EXPECT_EQ(listed.files_size(), 3);
  EXPECT_EQ(read(v1::FILE_SET_RESUME, "state.json", 0, 30), files.at("state.json").substr(0, 100));
  // The same checkpoint is pushed again, as after a lost reply, and then two newer ones.
  EXPECT_EQ(push(start_of(v1::FILE_SET_CHECKPOINT, 30, files), joined(files)), "");
  for (const int64_t step : {40, 50}) {
    const auto more = make_checkpoint(step);
    EXPECT_EQ(push(start_of(v1::FILE_SET_CHECKPOINT, step, more), joined(more)), "");
  }
  EXPECT_EQ(steps().front(), 50);
}

// Fails if an attempt could resume from half a checkpoint.
TEST_F(RemoteWorkerFiles, ATruncatedUploadIsNoCheckpointAndContinues) {
  const auto files = make_checkpoint(30);
  const std::string all = joined(files);
  auto start = start_of(v1::FILE_SET_CHECKPOINT, 30, files);
  const size_t half = all.size() / 2;
  EXPECT_EQ(push(start, all.substr(0, half)), "PUSH_INCOMPLETE");
  EXPECT_TRUE(steps().empty());
  EXPECT_EQ(list(v1::FILE_SET_RESUME).files_size(), 0);
  const auto again = files_->begin_push(start);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().reason, "PUSH_OFFSET_MISMATCH");
  EXPECT_EQ(again.error().metadata.at("offset"), std::to_string(half));
  start.set_offset(static_cast<int64_t>(half));
  EXPECT_EQ(push(start, all.substr(half)), "");
  EXPECT_EQ(steps(), std::vector<int64_t>{30});
}

TEST_F(RemoteWorkerFiles, BytesOtherThanDeclaredAreDropped) {
  const auto files = make_checkpoint(30);
  const auto start = start_of(v1::FILE_SET_CHECKPOINT, 30, files);
  std::string all = joined(files);
  all[all.size() / 3] ^= 1;
  EXPECT_EQ(push(start, all), "CONTENT_HASH_MISMATCH");
  EXPECT_TRUE(fs::is_empty(owner_->granted.checkpoints)) << "the part went too";
  EXPECT_EQ(push(start, joined(files) + "x"), "PUSH_TOO_LARGE");
  EXPECT_TRUE(steps().empty());
  // The checkpoint in these bytes is of step 30, but the push declares step 31.
  fs::remove_all(owner_->granted.checkpoints);
  EXPECT_EQ(push(start_of(v1::FILE_SET_CHECKPOINT, 31, files), joined(files)),
            "CONTENT_HASH_MISMATCH");
}

TEST_F(RemoteWorkerFiles, SizesAreLimited) {
  auto files = make_checkpoint(30);
  auto start = start_of(v1::FILE_SET_CHECKPOINT, 30, files);
  free_ = 1000;
  EXPECT_EQ(refusal(start), "DISK_LOW");
  free_ = int64_t{1} << 40;
  EXPECT_EQ(refusal(start), "");
  start.mutable_files(0)->set_size_bytes((1 << 20) + 1);
  EXPECT_EQ(refusal(start), "FIELD_OUT_OF_RANGE");
  start.mutable_files(0)->set_size_bytes(std::numeric_limits<int64_t>::max());
  start.mutable_files(1)->set_size_bytes(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(refusal(start), "FIELD_OUT_OF_RANGE");
}

TEST_F(RemoteWorkerFiles, OneStreamAtATimeWritesAFolder) {
  const auto files = make_checkpoint(30);
  const auto start = start_of(v1::FILE_SET_CHECKPOINT, 30, files);
  {
    const auto first = files_->begin_push(start);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(refusal(start), "PUSH_BUSY");
  }
  EXPECT_EQ(refusal(start), "");
}

// Fails if an attempt that has ended can still change the files that the next attempt reads.
TEST_F(RemoteWorkerFiles, AfterTheEndOfATaskNothingIsInstalled) {
  const auto files = make_checkpoint(30);
  auto push = files_->begin_push(start_of(v1::FILE_SET_CHECKPOINT, 30, files));
  ASSERT_TRUE(push.ok());
  ASSERT_TRUE((*push)->append(joined(files)).ok());
  supervisor_->ended_remote("t1", {});
  while (supervisor_->task_count() > 0) ::usleep(1000);
  const Status s = (*push)->finish();
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().reason, "ATTEMPT_FENCED");
  EXPECT_TRUE(steps().empty());
}

TEST_F(RemoteWorkerFiles, ADamagedCheckpointIsSkippedAndReported) {
  for (const int64_t step : {30, 40}) {
    const auto files = make_checkpoint(step);
    EXPECT_EQ(push(start_of(v1::FILE_SET_CHECKPOINT, step, files), joined(files)), "");
  }
  const fs::path newest = list_checkpoints(owner_->granted.checkpoints).front().path;
  std::fstream(newest / "weights.safetensors", std::ios::in | std::ios::out)
          .seekp(-1, std::ios::end)
      << '\x7f';
  const v1::ListFilesResponse listed = list(v1::FILE_SET_RESUME);
  EXPECT_EQ(listed.step(), 30);
  ASSERT_EQ(listed.damaged_size(), 1);
  EXPECT_EQ(listed.damaged(0), "step-000000040");
}

TEST_F(RemoteWorkerFiles, AModelIsReplacedAsAWhole) {
  std::map<std::string, std::string> files = {{"model.safetensors", "bytes"}, {"model.json", ""}};
  EXPECT_EQ(push(start_of(v1::FILE_SET_MODEL, 0, files), joined(files)), "");
  files["model.safetensors"] = "others";
  EXPECT_EQ(push(start_of(v1::FILE_SET_MODEL, 0, files), "other!"), "CONTENT_HASH_MISMATCH");
  EXPECT_EQ(*read_file(owner_->granted.model / "model.safetensors", 100), "bytes");
  EXPECT_EQ(push(start_of(v1::FILE_SET_MODEL, 0, files), joined(files)), "");
  EXPECT_EQ(*read_file(owner_->granted.model / "model.safetensors", 100), "others");
  EXPECT_TRUE(fs::exists(owner_->granted.model / "model.json")) << "it has no bytes";
}

// Fails if a part continues in the wrong file, so that the push is dropped.
TEST_F(RemoteWorkerFiles, APartialUploadContinuesAfterAnEmptyFile) {
  const std::map<std::string, std::string> files = {
      {"adapter_config.json", "{}"}, {"model.json", ""}, {"model.safetensors", "0123456789"}};
  auto start = start_of(v1::FILE_SET_MODEL, 0, files);
  const std::string all = joined(files);
  for (const size_t half : {2, 5}) {
    start.set_offset(0);
    std::filesystem::remove_all(owner_->granted.model.string() + ".tmp");
    EXPECT_EQ(push(start, all.substr(0, half), /*finishes=*/false), "");
    start.set_offset(static_cast<int64_t>(half));
    EXPECT_EQ(push(start, all.substr(half)), "") << "after " << half << " bytes";
    EXPECT_EQ(*read_file(owner_->granted.model / "model.safetensors", 100), "0123456789");
  }
}

TEST_F(RemoteWorkerFiles, WithoutATargetFolderNothingIsRemoved) {
  owner_->granted.model.clear();
  const std::map<std::string, std::string> files = {{"model.json", ""}, {"model.safetensors", "x"}};
  EXPECT_THROW((void)files_->begin_push(start_of(v1::FILE_SET_MODEL, 0, files)), InvariantError);
}

// ---- Keys ----------------------------------------------------------------------------------

class WorkerEndpointFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("door" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  Result<std::unique_ptr<WorkerEndpoint>> open() {
    return WorkerEndpoint::open(root_, "127.0.0.1:0", "");
  }
  fs::path root_;
};

TEST_F(WorkerEndpointFiles, KeysSurviveARestartAndArePrivate) {
  const auto first = open();
  ASSERT_TRUE(first.ok()) << first.error().message;
  const std::string secret = (*first)->enrolment_secret("uid-1");
  EXPECT_TRUE(is_sha256_hex(secret));
  EXPECT_NE(secret, (*first)->enrolment_secret("uid-2"));
  for (const auto& entry : fs::directory_iterator(root_ / "workers")) {
    struct stat st {};
    ASSERT_EQ(::stat(entry.path().c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u) << entry.path();
  }
  const auto second = open();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->certificate_pem(), (*first)->certificate_pem());
  EXPECT_EQ((*second)->enrolment_secret("uid-1"), secret);
  EXPECT_EQ((*second)->certificate_pem().find("PRIVATE"), std::string::npos);
  fs::remove(root_ / "workers/enrolment.key");
  const auto third = open();
  ASSERT_TRUE(third.ok());
  EXPECT_NE((*third)->enrolment_secret("uid-1"), secret) << "a lost key makes old secrets useless";
}

TEST_F(WorkerEndpointFiles, ADamagedFileIsNotReplacedSilently) {
  ASSERT_TRUE(open().ok());
  std::ofstream(root_ / "workers/identity.pem") << "no PEM";
  auto endpoint = open();
  ASSERT_FALSE(endpoint.ok());
  EXPECT_EQ(endpoint.error().reason, "WORKER_IDENTITY_INVALID");
  fs::remove(root_ / "workers/identity.pem");
  ASSERT_TRUE(open().ok());
  std::ofstream(root_ / "workers/enrolment.key") << "short";
  endpoint = open();
  ASSERT_FALSE(endpoint.ok());
  EXPECT_EQ(endpoint.error().reason, "WORKER_IDENTITY_INVALID");
}

TEST_F(WorkerEndpointFiles, WorkersGetTheAddressOfTheEndpoint) {
  const auto endpoint = open();
  ASSERT_TRUE(endpoint.ok());
  (*endpoint)->set_port(4711);
  EXPECT_EQ((*endpoint)->attach_address(), "127.0.0.1:4711");
  const auto named = WorkerEndpoint::open(root_, "0.0.0.0:7451", "head.example:7451");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ((*named)->attach_address(), "head.example:7451");
}

}  // namespace
}  // namespace trainyard::server
