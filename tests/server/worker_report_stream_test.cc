// Tests of the worker's side of its report stream while the daemon is away, refuses the worker, or
// has another version. The daemon of this test only counts reports.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/worker/report_stream.h"
#include "tests/support/patience.h"

namespace trainyard {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// Acknowledges consecutive reports. It returns `refusal` if one is set. While `silent`, it
/// acknowledges nothing; later, any message, even a heartbeat, triggers the delayed
/// acknowledgement.
class Daemon final : public v1::WorkerService::Service {
 public:
  grpc::Status Report(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerReport>* stream) override {
    v1::WorkerReport report;
    bool unheard = false;
    while (stream->Read(&report)) {
      const std::lock_guard lock(mu_);
      if (!refusal.ok()) return refusal;
      if (report.number() > newest_ + 1) gaps_ = true;
      if (report.number() == newest_ + 1) ++newest_;
      if (report.number() > 0) {
        unheard = true;
        ++received_;
        changed_.notify_all();
      }
      if (silent || !unheard) continue;
      unheard = false;
      v1::WorkerCommand command;
      command.set_acknowledged(newest_);
      stream->Write(command);
    }
    return grpc::Status::OK;
  }
  bool wait_for(int64_t number) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, patience(), [&] { return newest_ >= number; });
  }
  int64_t newest() {
    const std::lock_guard lock(mu_);
    return newest_;
  }
  /// Returns the number of reports received, including repeated ones.
  int64_t received() {
    const std::lock_guard lock(mu_);
    return received_;
  }
  bool gaps() {
    const std::lock_guard lock(mu_);
    return gaps_;
  }

  grpc::Status refusal = grpc::Status::OK;
  std::atomic<bool> silent{false};

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int64_t newest_ = 0, received_ = 0;
  bool gaps_ = false;
};

class WorkerReports : public ::testing::Test {
 protected:
  WorkerReports() : folder_(fs::temp_directory_path() / ("reports-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    options_.task = "job-1";
    options_.nonce = "secret";
    options_.heartbeat_interval = 50ms;
    options_.unattended = 60s;
    options_.spool = folder_ / "reports-1";
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    stub_ = v1::WorkerService::NewStub(
        grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments));
  }
  ~WorkerReports() override {
    stream_.reset();
    leave();
    fs::remove_all(folder_);
  }

  std::string address() const { return "unix:" + (folder_ / "socket").string(); }
  void come() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(&daemon_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void leave() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  ReportStream& begin() {
    stream_ =
        std::make_unique<ReportStream>(*stub_, options_, [this](const std::string&) { ++stops_; });
    return *stream_;
  }
  static v1::WorkerReport line() {
    v1::WorkerReport report;
    report.mutable_log()->set_text("a line");
    return report;
  }
  int64_t spooled() const {
    int64_t last = 0;
    SpoolReader reader = SpoolReader::open(options_.spool, 0).value();
    while (const std::optional<v1::WorkerReport> r = reader.next()) {
      EXPECT_EQ(r->number(), last + 1);
      last = r->number();
    }
    return last;
  }
  static grpc::Status refusal_of(grpc::StatusCode code, const std::string& reason) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    google::rpc::Status status;
    status.add_details()->PackFrom(info);
    return {code, "refused", status.SerializeAsString()};
  }

  const fs::path folder_;
  ReportStream::Options options_;
  Daemon daemon_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<ReportStream> stream_;
  std::atomic<int> stops_{0};
};

// The reports exceed the queue in memory: training does not wait, and the next daemon receives all.
TEST_F(WorkerReports, ReportsBeyondTheMemoryLimitWaitOnDisk) {
  constexpr int64_t kMany = 45'000;
  come();
  ReportStream& stream = begin();
  for (int i = 0; i < 100; ++i) stream.send(line());
  ASSERT_TRUE(daemon_.wait_for(100));
  leave();
  for (int64_t i = 100; i < kMany; ++i) stream.send(line());
  EXPECT_EQ(spooled(), kMany);
  come();
  for (int i = 0; i < 10; ++i) stream.send(line());
  EXPECT_TRUE(stream.drain());
  EXPECT_EQ(daemon_.newest(), kMany + 10);
  EXPECT_FALSE(daemon_.gaps());
  EXPECT_EQ(stops_, 0);
  EXPECT_LT(fs::file_size(options_.spool), 1u << 20) << "what is acknowledged goes";
}

// Fails if a new stream sends all waiting reports at once, since a link that breaks before the
// first acknowledgement would then carry them again with each new stream.
TEST_F(WorkerReports, ANewStreamCarriesOneReportUntilItIsAcknowledged) {
  daemon_.silent = true;
  ReportStream& stream = begin();
  for (int i = 0; i < 1000; ++i) stream.send(line());
  for (int64_t times = 1; times <= 2; ++times) {
    come();
    EXPECT_TRUE(eventually([&] { return daemon_.received() >= times; }));
    std::this_thread::sleep_for(200ms);  // gives excess reports time to arrive
    EXPECT_EQ(daemon_.received(), times);
    leave();
  }
  EXPECT_EQ(daemon_.newest(), 1);
  daemon_.silent = false;
  come();
  EXPECT_TRUE(daemon_.wait_for(1000));
  EXPECT_FALSE(daemon_.gaps());
}

TEST_F(WorkerReports, AFinishedWorkerLeavesItsReportsToTheNextDaemon) {
  options_.away_after = 200ms;
  ReportStream& stream = begin();
  for (int i = 0; i < 3; ++i) stream.send(line());
  EXPECT_TRUE(stream.drain());
  EXPECT_EQ(spooled(), 3);
  EXPECT_EQ(stops_, 0) << "it is not asked to stop: it is done";
}

TEST_F(WorkerReports, WithoutASpoolAWorkerWaitsForItsDaemonUntilItsLimit) {
  options_.away_after = 100ms;
  options_.unattended = 700ms;
  options_.spool.clear();
  const auto begun = std::chrono::steady_clock::now();
  ReportStream& stream = begin();
  stream.send(line());
  EXPECT_FALSE(stream.drain()) << "its report is lost with it";
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 700ms);
  EXPECT_TRUE(eventually([&] { return stops_ > 0; }));
  EXPECT_EQ(stops_, 1);
}

TEST_F(WorkerReports, AWorkerStopsIfItsFolderIsRemoved) {
  come();
  ReportStream& stream = begin();
  stream.send(line());
  ASSERT_TRUE(daemon_.wait_for(1));
  leave();
  fs::remove_all(folder_);
  EXPECT_TRUE(eventually([&] { return stops_ > 0; }));
  EXPECT_EQ(stops_, 1);
}

TEST_F(WorkerReports, ADaemonOfAnotherVersionGetsTheSpoolAndAStop) {
  daemon_.refusal = refusal_of(grpc::StatusCode::FAILED_PRECONDITION, "VERSION_SKEW");
  come();
  ReportStream& stream = begin();
  stream.send(line());
  EXPECT_TRUE(eventually([&] { return stops_ > 0; }));
  EXPECT_EQ(stops_, 1) << "it is to save its work";
  stream.send(line());
  EXPECT_TRUE(stream.drain());
  EXPECT_EQ(spooled(), 2);
}

TEST_F(WorkerReports, AFencedWorkerDropsItsReports) {
  daemon_.refusal = refusal_of(grpc::StatusCode::ABORTED, "ATTEMPT_FENCED");
  come();
  ReportStream& stream = begin();
  stream.send(line());
  EXPECT_FALSE(stream.drain());
  EXPECT_EQ(stops_, 1);
}

// A worker whose outcome is refused has not completed its task, although no report waits to be
// sent.
TEST_F(WorkerReports, ReportsAfterTheFenceAreNotSent) {
  daemon_.refusal = refusal_of(grpc::StatusCode::ABORTED, "ATTEMPT_FENCED");
  come();
  ReportStream& stream = begin();
  EXPECT_TRUE(eventually([&] { return stops_ > 0; }));
  ASSERT_EQ(stops_, 1);
  stream.send(line());
  EXPECT_FALSE(stream.drain());
}

TEST_F(WorkerReports, AFullDiskLosesTheSpoolAndNoReport) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};  // no file may grow
  come();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  ReportStream& stream = begin();
  for (int i = 0; i < 100; ++i) stream.send(line());
  const bool drained = stream.drain();
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(drained);
  EXPECT_EQ(spooled(), 0);
  EXPECT_EQ(daemon_.newest(), 100);
  EXPECT_FALSE(daemon_.gaps());
}

}  // namespace
}  // namespace trainyard
