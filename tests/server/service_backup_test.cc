// Tests of backups of a running daemon: one at a time, without delaying other calls, and without
// leftovers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "server/config/paths.h"
#include "src/base/sha256.h"
#include "tests/server/service_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class ServiceBackup : public ServiceTest {
 protected:
  using Stream = std::unique_ptr<grpc::ClientReader<v1::BackupResponse>>;

  /// Reads all files and the summary of a stream, and compares the files with their digests.
  grpc::Status read_all(Stream& stream, std::map<std::string, std::string>& files,
                        v1::BackupResponse::Summary& summary) {
    v1::BackupResponse message;
    std::string path;
    while (stream->Read(&message)) {
      if (message.has_header()) {
        path = message.header().path();
        EXPECT_TRUE(files.try_emplace(path).second) << path << " came twice";
      } else if (message.kind_case() == v1::BackupResponse::kData) {
        files[path] += message.data();
      } else if (message.has_end()) {
        EXPECT_EQ(message.end().sha256(), sha256_hex(files[path])) << path;
      } else if (message.has_summary()) {
        summary = message.summary();
      }
    }
    return stream->Finish();
  }
  fs::path staging() const { return StatePaths(config_.state_dir).backup(); }
};

TEST_F(ServiceBackup, SendsEverythingAndLeavesNoLeftovers) {
  make_dataset();
  submit("done", "");
  wait_for("done", v1::SUCCEEDED);
  submit("running", "wait_for_stop");
  wait_for("running", v1::RUNNING);
  auto c = context();
  Stream stream = system_->Backup(c.get(), {});
  std::map<std::string, std::string> files;
  v1::BackupResponse::Summary summary;
  const grpc::Status status = read_all(stream, files, summary);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(summary.format_version(), 1);
  EXPECT_EQ(summary.file_count(), std::ssize(files));
  EXPECT_EQ(summary.warnings_size(), 0) << summary.warnings(0);
  EXPECT_TRUE(files.contains("trainyard.db"));
  EXPECT_TRUE(
      std::ranges::any_of(files, [](const auto& f) { return f.first.starts_with("datasets/"); }));
  EXPECT_TRUE(files.contains("models/" + get("done").uid() + "/model.safetensors"));
  EXPECT_FALSE(fs::exists(staging())) << "whoever hears of the end may begin the next one";
  for (int i = 0; i < 20; ++i) {
    auto next = context();
    Stream again = system_->Backup(next.get(), {});
    files.clear();
    const grpc::Status ended = read_all(again, files, summary);
    ASSERT_TRUE(ended.ok()) << ended.error_message();
  }
  EXPECT_EQ(get("running").state(), v1::RUNNING);
}

TEST_F(ServiceBackup, RunsOneAtATimeWithoutBlockingOtherCalls) {
  v1::Upload up;
  ASSERT_TRUE(upload(std::string(8 << 20, 'x'), &up).ok());  // more than a stream buffers
  auto c = context();
  Stream slow = system_->Backup(c.get(), {});
  v1::BackupResponse message;
  ASSERT_TRUE(slow->Read(&message));
  auto c2 = context();
  Stream second = system_->Backup(c2.get(), {});
  EXPECT_FALSE(second->Read(&message));
  const grpc::Status busy = second->Finish();
  EXPECT_EQ(busy.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(reason_of(busy), "BACKUP_BUSY");
  v1::ServerInfo info;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok());
  }
  std::map<std::string, std::string> files;
  v1::BackupResponse::Summary summary;
  EXPECT_TRUE(read_all(slow, files, summary).ok());
  EXPECT_GT(summary.file_count(), 0);
}

TEST_F(ServiceBackup, AClientThatDisconnectsReleasesTheBackupAndItsLinks) {
  v1::Upload up;
  ASSERT_TRUE(upload(std::string(16 << 20, 'x'), &up).ok());
  {
    auto c = context();
    Stream stream = system_->Backup(c.get(), {});
    v1::BackupResponse message;
    ASSERT_TRUE(stream->Read(&message));
    EXPECT_TRUE(fs::exists(staging()));
    c->TryCancel();
    stream->Finish();
  }
  EXPECT_TRUE(eventually([&] { return !fs::exists(staging()); }));
  EXPECT_TRUE(eventually([&] {
    auto c = context();
    Stream again = system_->Backup(c.get(), {});
    std::map<std::string, std::string> files;
    v1::BackupResponse::Summary summary;
    return read_all(again, files, summary).ok();
  }));
}

TEST_F(ServiceBackup, AClientThatReadsNothingEndsTheBackupWithAnError) {
  stop();
  change_parts_ = [](DaemonParts& parts) { parts.backup_stall_ms = 300; };
  start();
  v1::Upload up;
  ASSERT_TRUE(upload(std::string(16 << 20, 'x'), &up).ok());  // more than a stream buffers
  auto c = context();
  Stream suspended = system_->Backup(c.get(), {});
  v1::BackupResponse message;
  ASSERT_TRUE(suspended->Read(&message));
  EXPECT_TRUE(eventually([&] {
    auto c2 = context();
    Stream next = system_->Backup(c2.get(), {});
    std::map<std::string, std::string> files;
    v1::BackupResponse::Summary summary;
    return read_all(next, files, summary).ok();
  })) << "the place is held for ever";
  EXPECT_TRUE(eventually([&] { return !fs::exists(staging()); }));
  while (suspended->Read(&message)) EXPECT_FALSE(message.has_summary());
  const grpc::Status reported = suspended->Finish();
  EXPECT_EQ(reported.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(reason_of(reported), "BACKUP_STALLED");
}

TEST_F(ServiceBackup, ADaemonThatStopsDoesNotWaitForIt) {
  v1::Upload up;
  ASSERT_TRUE(upload(std::string(16 << 20, 'x'), &up).ok());
  auto c = context();
  Stream stream = system_->Backup(c.get(), {});
  v1::BackupResponse message;
  ASSERT_TRUE(stream->Read(&message));
  const auto begun = std::chrono::steady_clock::now();
  stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, promised(std::chrono::seconds(5)));
  EXPECT_FALSE(fs::exists(staging()));
  std::map<std::string, std::string> files;
  v1::BackupResponse::Summary summary;
  EXPECT_FALSE(read_all(stream, files, summary).ok());
}

TEST_F(ServiceBackup, AStartRemovesLeftoversOfAKilledDaemon) {
  stop();
  fs::create_directories(staging() / "uploads");
  start();
  EXPECT_FALSE(fs::exists(staging()));
}

TEST_F(ServiceBackup, KnownDamageIsReported) {
  v1::Upload up;
  ASSERT_TRUE(upload("content", &up).ok());
  std::ofstream(StatePaths(config_.state_dir).upload(sha256_hex("content"))) << "CONTENT";
  auto c = context();
  Stream stream = system_->Backup(c.get(), {});
  std::map<std::string, std::string> files;
  v1::BackupResponse::Summary summary;
  EXPECT_TRUE(read_all(stream, files, summary).ok());
  ASSERT_EQ(summary.warnings_size(), 1);
  EXPECT_NE(summary.warnings(0).find(sha256_hex("content")), std::string::npos);
}

TEST_F(ServiceBackup, AnUnknownFieldIsRefused) {
  auto c = context();
  v1::BackupRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  Stream stream = system_->Backup(c.get(), request);
  v1::BackupResponse message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(reason_of(stream->Finish()), "FIELD_UNKNOWN");
}

}  // namespace
}  // namespace trainyard::server
