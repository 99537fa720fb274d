// tests/server/service_support.h: a whole daemon in this process, with a worker that misbehaves on
// request (fake_worker.cc), and clients connected to its Unix socket.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/daemon/daemon.h"
#include "server/inventory/fake_inventory.h"
#include "src/base/crc32c.h"
#include "src/base/sha256.h"
#include "tests/support/patience.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"
#include "trainyard/v1/job_service.grpc.pb.h"
#include "trainyard/v1/model_service.grpc.pb.h"
#include "trainyard/v1/system_service.grpc.pb.h"

namespace trainyard::server {

inline std::string reason_of(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0 ||
      !details.details(0).UnpackTo(&info)) {
    return "no details, code " + std::to_string(status.error_code()) + ": " +
           status.error_message();
  }
  return info.reason();
}

/// Keeps the gRPC library initialized between tests. Its shutdown after the last object waits up to
/// 10 s for connections with unsent data, which would delay the next test.
inline const bool kLibraryIsKept = (grpc_init(), true);

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // as trainyardd does
    root_ = std::filesystem::temp_directory_path() /
            ("ty" + std::to_string(::getpid()) + "-" + std::to_string(++count_));
    std::filesystem::remove_all(root_);
    config_.state_dir = root_ / "state";
    config_.worker = FAKE_WORKER;
    config_.drain_seconds = 5;
    config_.unattended_seconds = 0;  // no worker survives a test that dies
    config_.cancel_grace_seconds = 1;
    config_.cpu_slots = 2;
    config_.threads_per_job = 1;
    start();
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(root_);
  }

  void start() {
    ASSERT_TRUE(complete_config("/x/trainyardd", config_).ok());
    DaemonParts parts;
    Device cpu;
    cpu.name = "devices/cpu";
    cpu.memory_bytes = int64_t{8} << 30;
    cpu.slots = config_.cpu_slots;
    cpu.cores = 2;
    Devices devices{{cpu}, gpus_.empty() ? "no GPU in this test" : ""};
    devices.devices.insert(devices.devices.end(), gpus_.begin(), gpus_.end());
    auto inventory = std::make_unique<FakeInventory>(std::move(devices));
    inventory_ = inventory.get();
    parts.inventory = std::move(inventory);
    if (free_bytes_) parts.free_bytes = free_bytes_;
    parts.watch_heartbeat_ms = 200;
    parts.worker_heartbeat_ms = 200;
    parts.worker_kill_grace_ms = 100;
    parts.worker_stall_ms = 1'000;  // compared with the idle time in heartbeats
    if (change_parts_) change_parts_(parts);
    Result<std::unique_ptr<Daemon>> daemon = Daemon::start(config_, std::move(parts));
    ASSERT_TRUE(daemon.ok()) << daemon.error().message;
    daemon_ = std::move(daemon).value();
    connect("unix:" + config_.socket.string());
  }
  void connect(const std::string& target) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);
    channel_ = grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
    jobs_ = v1::JobService::NewStub(channel_);
    datasets_ = v1::DatasetService::NewStub(channel_);
    models_ = v1::ModelService::NewStub(channel_);
    system_ = v1::SystemService::NewStub(channel_);
  }
  void stop() { daemon_.reset(); }

  static std::unique_ptr<grpc::ClientContext> context() {
    auto c = std::make_unique<grpc::ClientContext>();
    c->set_deadline(std::chrono::system_clock::now() + patience());
    return c;
  }

  /// Makes a unary call whose request is `bytes`, which need not be a valid message.
  grpc::Status call_raw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::mutex mu;
    std::condition_variable done;
    std::optional<grpc::Status> status;
    auto c = context();
    stub.UnaryCall(c.get(), method, grpc::StubOptions(), &request, &response, [&](grpc::Status s) {
      const std::lock_guard lock(mu);
      status = s;
      done.notify_all();
    });
    std::unique_lock lock(mu);
    done.wait(lock, [&] { return status.has_value(); });
    return *status;
  }

  /// Watches a job to the end of the stream. Returns its events and sets `end` to the stream's
  /// status.
  std::vector<v1::Event> watch(const std::string& id, int64_t after, grpc::Status* end,
                               v1::WatchJobResponse::Start* start = nullptr) {
    auto c = context();
    v1::WatchJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    request.set_after(after);
    auto stream = jobs_->WatchJob(c.get(), request);
    std::vector<v1::Event> events;
    v1::WatchJobResponse response;
    bool first = true;
    while (stream->Read(&response)) {
      EXPECT_EQ(first, response.has_start()) << "start comes first and once";
      if (first && start != nullptr) *start = response.start();
      first = false;
      events.insert(events.end(), response.events().begin(), response.events().end());
    }
    *end = stream->Finish();
    return events;
  }

  static constexpr size_t kChunkBytes = 1 << 20;
  /// Uploads `content` in one stream.
  grpc::Status upload(const std::string& content, v1::Upload* upload, bool finish = true) {
    auto c = context();
    auto stream = datasets_->UploadFile(c.get(), upload);
    v1::UploadFileRequest request;
    request.mutable_start()->set_sha256(sha256_hex(content));
    request.mutable_start()->set_size_bytes(static_cast<int64_t>(content.size()));
    stream->Write(request);
    for (size_t at = 0; at < content.size(); at += kChunkBytes) {
      const std::string part = content.substr(at, kChunkBytes);
      request.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      request.mutable_chunk()->set_data(part);
      request.mutable_chunk()->set_crc32c(crc32c(part));
      stream->Write(request);
    }
    if (finish) {
      request.mutable_finish();
      stream->Write(request);
    }
    stream->WritesDone();
    return stream->Finish();
  }

  /// Creates a READY dataset of 120 rows. Another `from` gives other content.
  void make_dataset(const std::string& target = "species", const std::string& id = "iris",
                    size_t from = 0) {
    std::string content = "a,b,c,d,species\n";  // three classes
    for (size_t i = 0; i < 120; ++i) {
      content += std::to_string(i % 7) + ".5," + std::to_string(i % 5) + ".25," +
                 std::to_string(i + from) + ".0," + std::to_string(id.size()) + "," +
                 std::string(1, static_cast<char>('x' + i % 3)) + "\n";
    }
    dataset_ = create_csv(content, id, target);
    wait_for_ingest();
  }
  /// Uploads rows and creates a dataset from them. Does not wait for its ingest.
  v1::Dataset create_csv(const std::string& content, const std::string& id,
                         const std::string& target) {
    v1::Upload up;
    const grpc::Status uploaded = upload(content, &up);
    EXPECT_TRUE(uploaded.ok()) << uploaded.error_message();
    EXPECT_TRUE(up.complete());
    v1::CreateDatasetRequest request;
    request.set_dataset_id(id);
    v1::DatasetSource& source = *request.mutable_spec()->add_sources();
    source.set_role(v1::DatasetSource::DATA);
    source.set_sha256(sha256_hex(content));
    request.mutable_spec()->mutable_csv()->set_target(target);
    v1::Dataset dataset;
    const grpc::Status created = datasets_->CreateDataset(context().get(), request, &dataset);
    EXPECT_TRUE(created.ok()) << created.error_message();
    return dataset;
  }
  v1::Dataset get_dataset(const std::string& name) {
    v1::GetDatasetRequest get;
    get.set_name(name);
    v1::Dataset dataset;
    EXPECT_TRUE(datasets_->GetDataset(context().get(), get, &dataset).ok());
    return dataset;
  }
  void wait_for_ingest() {
    ASSERT_TRUE(eventually([&] {
      dataset_ = get_dataset(dataset_.name());
      return dataset_.state() != v1::Dataset::INGESTING;
    }));
  }

  static v1::SubmitJobRequest job_request(const std::string& id, const std::string& act) {
    v1::SubmitJobRequest request;
    request.set_job_id(id);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.mutable_dataset()->set_name("iris");
    spec.mutable_model()->mutable_mlp()->add_hidden(8);
    spec.mutable_recipe()->set_epochs(2);
    spec.mutable_recipe()->set_batch_size(10);
    spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.1);
    if (!act.empty()) (*spec.mutable_labels())["act"] = act;
    return request;
  }
  grpc::Status submit(const v1::SubmitJobRequest& request, v1::Job* job) {
    return jobs_->SubmitJob(context().get(), request, job);
  }
  v1::Job submit(const std::string& id, const std::string& act) {
    v1::Job job;
    const grpc::Status s = submit(job_request(id, act), &job);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return job;
  }
  v1::Job get(const std::string& id) {
    v1::GetJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    v1::Job job;
    const grpc::Status s = jobs_->GetJob(context().get(), request, &job);
    if (!s.ok()) throw std::runtime_error("GetJob " + id + ": " + s.error_message());
    return job;
  }
  v1::Job wait_for(const std::string& id, v1::JobState state) {
    v1::Job job;
    EXPECT_TRUE(eventually([&] { return (job = get(id)).state() == state; }))
        << "it stayed " << v1::JobState_Name(job.state()) << ": " << job.reason() << " "
        << job.message();
    return job;
  }
  grpc::Status cancel(const std::string& id, v1::Job* job) {
    v1::CancelJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    return jobs_->CancelJob(context().get(), request, job);
  }

  static inline int count_ = 0;
  std::filesystem::path root_;
  Config config_;
  std::vector<Device> gpus_;  // the GPUs that the next start() finds
  FreeBytes free_bytes_;      // set: replaces the daemon's query of free disk space
  std::function<void(DaemonParts&)> change_parts_;
  FakeInventory* inventory_ = nullptr;  // owned by the running daemon
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<v1::SystemService::Stub> system_;
  v1::Dataset dataset_;
};

}  // namespace trainyard::server
