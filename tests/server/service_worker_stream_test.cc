// Tests that a worker's report is passed to its task before the next report is read.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/handlers/worker_service.h"
#include "server/processes/executor.h"
#include "server/processes/supervisor.h"
#include "server/protocol/versions.h"
#include "tests/support/patience.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard::server {
namespace {

constexpr int64_t kReports = 70;
constexpr int64_t kPausedAt = 64;  // the limit on unacknowledged reports, where the stream pauses

/// Acknowledges nothing before the pause. While it receives the report at the pause, another thread
/// acknowledges all earlier reports, so that the stream may read again.
class SlowOwner final : public TaskOwner {
 public:
  Result<v1::Assignment> assignment() override { return v1::Assignment(); }
  void report(const v1::WorkerReport& report, Done<void> done) override {
    if (inside_.exchange(true)) overtaken = true;
    {
      const std::lock_guard lock(mu_);
      order_.push_back(report.number());
      waiting_.push_back(std::move(done));
    }
    if (report.number() == kPausedAt) {
      std::thread([this] { answer(); }).join();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    inside_ = false;
    if (report.number() >= kPausedAt) answer();
  }
  void ended(const TaskEnd&, TaskHold) override {}

  std::vector<int64_t> order() {
    const std::lock_guard lock(mu_);
    return order_;
  }
  std::atomic<bool> overtaken{false};

 private:
  void answer() {
    std::vector<Done<void>> done;
    {
      const std::lock_guard lock(mu_);
      done.swap(waiting_);
    }
    for (const Done<void>& one : done) one({});
  }

  std::atomic<bool> inside_{false};
  std::mutex mu_;
  std::vector<int64_t> order_;
  std::vector<Done<void>> waiting_;
};

TEST(ServiceWorkerStream, ReportsKeepTheirOrder) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("stream" + std::to_string(::getpid()));
  std::filesystem::create_directories(root);
  SupervisorOptions options;
  options.worker = root / "worker";
  options.log_dir = root;
  std::ofstream(options.worker) << "#!/bin/sh\nexec sleep 60\n";
  ::chmod(options.worker.c_str(), 0700);
  Supervisor supervisor(options);
  Executor executor(1, 10);
  const auto service = make_worker_service(supervisor, executor);
  const std::string address = "unix:" + (root / "socket").string();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(service.get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);

  const auto owner = std::make_shared<SlowOwner>();
  Supervisor::NewTask fresh;
  fresh.kind = "test";
  fresh.owner = owner;
  const std::string nonce = fresh.nonce;
  const std::string task = supervisor.start(std::move(fresh));
  const auto stub =
      v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::AttachRequest attach;
  attach.set_task(task);
  attach.set_nonce(nonce);
  attach.set_version(TRAINYARD_VERSION);
  attach.set_protocol_min(kProtocols.oldest);
  attach.set_protocol_max(kProtocols.newest);
  const auto of_a_later_version = [](google::protobuf::Message& message) {
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(4711, 1);
  };
  of_a_later_version(attach);
  {
    grpc::ClientContext call;
    v1::Assignment assignment;
    const grpc::Status attached = stub->Attach(&call, attach, &assignment);
    ASSERT_TRUE(attached.ok()) << attached.error_message();
  }

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience());
  const auto stream = stub->Report(&context);
  for (int64_t number = 1; number <= kReports; ++number) {
    v1::WorkerReport report;
    report.set_number(number);
    report.mutable_log()->set_text("a line");
    if (number == 1) {
      report.set_task(task);
      report.set_nonce(nonce);
      report.set_protocol(kProtocols.newest);
      of_a_later_version(report);
    }
    ASSERT_TRUE(stream->Write(report));
  }
  v1::WorkerCommand command;
  while (stream->Read(&command) && command.acknowledged() < kReports) {
  }
  EXPECT_EQ(command.acknowledged(), kReports);
  EXPECT_FALSE(owner->overtaken);
  const std::vector<int64_t> order = owner->order();
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(std::ssize(order), kReports);
  stream->WritesDone();
  (void)stream->Finish();
  server->Shutdown();
  supervisor.kill_all();
  EXPECT_TRUE(supervisor.wait_idle(10'000));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace trainyard::server
