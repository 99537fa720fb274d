// Tests with a disk that is nearly full: new work is refused with a reason, running work continues,
// and freed space counts immediately. Another disk hangs, which must not block unrelated calls.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/handlers/job_handlers.h"
#include "tests/data/unsynced_files.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(DiskWatch, ReportsFreeAndRequiredSpaceAndTheRemedy) {
  int64_t free = 100 * kMiB;
  DiskWatch disk("/", 64 * kMiB, [&](const auto&) { return std::optional<int64_t>(free); });
  EXPECT_TRUE(disk.check().ok());
  EXPECT_TRUE(disk.check(36 * kMiB).ok());
  const Status large = disk.check(37 * kMiB);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(large.error().reason, "DISK_LOW");
  for (const char* word : {"100 MiB", "37 MiB", "64 MiB", "delete"}) {
    EXPECT_NE(large.error().message.find(word), std::string::npos) << large.error().message;
  }
  EXPECT_FALSE(disk.warning());
  free = 63 * kMiB;
  EXPECT_EQ(disk.check().error().reason, "DISK_LOW");
  EXPECT_NE(disk.warning()->find("disk_free_bytes_min"), std::string::npos);
  free = 64 * kMiB;
  EXPECT_TRUE(disk.check().ok()) << "without a restart";
  EXPECT_FALSE(disk.warning());
}

TEST(DiskWatch, NoticesALowDiskWithoutBeingAsked) {
  std::mutex mu;
  std::condition_variable changed;
  int queries = 0;
  DiskWatch disk("/", kMiB, [&](const auto&) {
    const std::lock_guard lock(mu);
    ++queries;
    changed.notify_all();
    return std::optional<int64_t>(0);
  });
  disk.start(std::chrono::milliseconds(1));
  std::unique_lock lock(mu);
  EXPECT_TRUE(changed.wait_for(lock, patience(), [&] { return queries >= 3; }));
}

TEST(DiskState, ARunningJobSaysThatTheDiskIsFull) {
  Job job;
  job.state = JobState::kRunning;
  job.reason = "DEVICE_ASSIGNED";
  EXPECT_EQ(with_disk_state(job, false).reason, "DEVICE_ASSIGNED");
  const Job shown = with_disk_state(job, true);
  EXPECT_EQ(shown.reason, "STORAGE_FULL");
  EXPECT_NE(shown.message.find("until space is freed"), std::string::npos) << shown.message;
  job.state = JobState::kSucceeded;
  EXPECT_EQ(with_disk_state(job, true).reason, "DEVICE_ASSIGNED") << "it has ended";
}

TEST(DiskWatch, ALimitOfZeroOrAnUnknownDiskCountsAsRoom) {
  DiskWatch off("/", 0, [](const auto&) { return std::optional<int64_t>(0); });
  EXPECT_TRUE(off.check(int64_t{1} << 50).ok());
  DiskWatch silent("/", kMiB, [](const auto&) { return std::optional<int64_t>(); });
  EXPECT_TRUE(silent.check().ok());
  EXPECT_TRUE(free_bytes_of("/").has_value());
  EXPECT_FALSE(free_bytes_of("/no/such/folder").has_value());
}

class ServiceDisk : public ServiceTest {
 protected:
  ServiceDisk() {
    free_bytes_ = [this](const auto&) { return std::optional<int64_t>(free_.load()); };
  }
  v1::ServerInfo info() {
    v1::ServerInfo info;
    EXPECT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok());
    return info;
  }
  std::atomic<int64_t> free_ = int64_t{100} << 30;
};

TEST_F(ServiceDisk, NewWorkIsRefusedAndRunningWorkContinues) {
  make_dataset();
  const v1::SubmitJobRequest known = [] {
    v1::SubmitJobRequest r = job_request("running", "wait_for_stop");
    r.set_request_id("5b1f2c52-6b0c-4c3f-9e5e-0c1d5b8f7a10");
    return r;
  }();
  v1::Job job;
  ASSERT_TRUE(submit(known, &job).ok());
  wait_for("running", v1::RUNNING);
  EXPECT_EQ(info().warnings_size(), 1) << "SQLite's";
  const std::string weights = "not really weights";
  v1::Upload up;
  ASSERT_TRUE(upload(weights, &up).ok());

  free_ = 10;
  const grpc::Status refused = submit(job_request("another", ""), &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reason_of(refused), "DISK_LOW");
  EXPECT_NE(refused.error_message().find("10 B"), std::string::npos) << refused.error_message();
  EXPECT_EQ(refused.error_message().find(root_.string()), std::string::npos);
  EXPECT_TRUE(submit(known, &job).ok()) << "a submit that is sent again gets its job";
  v1::SubmitJobRequest dry = job_request("", "");
  dry.set_validate_only(true);
  EXPECT_TRUE(submit(dry, &job).ok()) << "it stores nothing";

  EXPECT_EQ(reason_of(upload("new content", &up)), "DISK_LOW");
  EXPECT_TRUE(upload(weights, &up).ok()) << "nothing of what is there is sent again";
  v1::CreateDatasetRequest dataset;
  dataset.set_dataset_id("another");
  dataset.mutable_spec()->add_sources()->set_sha256(sha256_hex(weights));
  dataset.mutable_spec()->mutable_sources(0)->set_role(v1::DatasetSource::DATA);
  dataset.mutable_spec()->mutable_csv()->set_target("x");
  v1::Dataset made;
  EXPECT_EQ(reason_of(datasets_->CreateDataset(context().get(), dataset, &made)), "DISK_LOW");
  v1::CreateModelRequest import;
  import.set_sha256(sha256_hex(weights));
  v1::Model model;
  EXPECT_EQ(reason_of(models_->CreateModel(context().get(), import, &model)), "DISK_LOW");

  const v1::ServerInfo low = info();
  ASSERT_EQ(low.warnings_size(), 2);
  EXPECT_NE(low.warnings(1).find("disk_free_bytes_min"), std::string::npos) << low.warnings(1);
  EXPECT_EQ(get("running").state(), v1::RUNNING);
  EXPECT_TRUE(cancel("running", &job).ok());
  wait_for("running", v1::CANCELLED);

  free_ = int64_t{100} << 30;
  EXPECT_EQ(info().warnings_size(), 1);
  EXPECT_TRUE(submit(job_request("another", ""), &job).ok()) << "without a restart";
  EXPECT_TRUE(upload("new content", &up).ok());
}

TEST_F(ServiceDisk, AnUploadThatReachesTheLimitKeepsItsBytes) {
  const std::string content(3 * kChunkBytes, 'x');
  auto c = context();
  v1::Upload up;
  auto stream = datasets_->UploadFile(c.get(), &up);
  v1::UploadFileRequest request;
  request.mutable_start()->set_sha256(sha256_hex(content));
  request.mutable_start()->set_size_bytes(std::ssize(content));
  stream->Write(request);
  const auto send = [&](size_t at) {
    request.mutable_chunk()->set_offset(static_cast<int64_t>(at));
    request.mutable_chunk()->set_data(content.substr(at, kChunkBytes));
    request.mutable_chunk()->set_crc32c(crc32c(content.substr(at, kChunkBytes)));
    return stream->Write(request);
  };
  ASSERT_TRUE(send(0));
  std::filesystem::path part =
      StatePaths(config_.state_dir)
          .upload_part("default", sha256_hex(content), std::ssize(content));
  ASSERT_TRUE(eventually([&] {
    std::error_code ec;
    return std::filesystem::file_size(part, ec) == kChunkBytes && !ec;
  }));
  free_ = 10;
  send(kChunkBytes);
  send(2 * kChunkBytes);
  stream->WritesDone();
  EXPECT_EQ(reason_of(stream->Finish()), "DISK_LOW");
  v1::GetUploadRequest get;
  get.set_name("projects/default/uploads/" + sha256_hex(content));
  ASSERT_TRUE(datasets_->GetUpload(context().get(), get, &up).ok());
  EXPECT_EQ(up.committed_size(), static_cast<int64_t>(kChunkBytes));
}

TEST_F(ServiceDisk, AnUploadThatCannotFitIsRefusedAtItsStart) {
  free_ = config_.disk_free_bytes_min + 5;
  v1::Upload up;
  EXPECT_EQ(reason_of(upload("six by", &up)), "DISK_LOW");
  EXPECT_TRUE(upload("five!", &up).ok());
}

/// A disk on which, while it is stuck, the rename of a new upload into place blocks.
class StuckFiles final : public UnsyncedFiles {
 public:
  Status sync_directory(const std::filesystem::path& directory) override {
    std::unique_lock lock(mu_);
    if (stuck_ && directory.filename() == "uploads") {
      ++waiting_;
      changed_.wait(lock, [this] { return !stuck_; });
    }
    return UnsyncedFiles::sync_directory(directory);
  }
  void set_stuck(bool stuck) {
    const std::lock_guard lock(mu_);
    stuck_ = stuck;
    changed_.notify_all();
  }
  int waiting() {
    const std::lock_guard lock(mu_);
    return waiting_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool stuck_ = false;
  int waiting_ = 0;
};

TEST_F(ServiceDisk, UploadsOnAStalledDiskDoNotDelayOtherCalls) {
  // The number of the daemon's threads for streams of files, and that for other calls.
  constexpr int kThreads = 8;
  StuckFiles files;
  stop();
  change_parts_ = [&](DaemonParts& parts) { parts.files = &files; };
  start();
  files.set_stuck(true);
  std::atomic<int> uploaded = 0;
  std::vector<std::thread> uploads;
  for (int i = 0; i < 2 * kThreads; ++i) {
    uploads.emplace_back([&, i] {
      v1::Upload done;
      if (upload("content " + std::to_string(i), &done).ok()) ++uploaded;
    });
  }
  EXPECT_TRUE(eventually([&] { return files.waiting() >= kThreads; }));
  v1::ListJobsRequest all;
  all.set_parent("projects/default");
  v1::ListJobsResponse jobs;
  const grpc::Status listed = jobs_->ListJobs(context().get(), all, &jobs);
  EXPECT_TRUE(listed.ok()) << listed.error_message();
  EXPECT_EQ(uploaded, 0);
  files.set_stuck(false);
  for (std::thread& thread : uploads) thread.join();
  EXPECT_EQ(uploaded, 2 * kThreads);
  stop();
}

}  // namespace
}  // namespace trainyard::server
