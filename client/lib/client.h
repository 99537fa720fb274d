// client/lib/client.h: the Trainyard API as plain calls.
//
// Unary calls have a deadline (Connection::timeout_ms). Reads, and submits with a request_id, are
// retried while the server is UNAVAILABLE, with growing pauses, up to kRetriesMax times and never
// beyond the deadline; a cancel until the deadline. Everything else is sent once. Thread-safe. gRPC
// stays out of this header, so that few units pay for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "client/lib/connection.h"
#include "client/lib/names.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::client {

class UploadStream;

class Client {
 public:
  static constexpr int kRetriesMax = 4;

  /// What connect() does where no server listens on the Unix socket.
  enum class NoServer {
    kRefuse,
    kWait,  // it may be restarting: for as long as a call may take
  };
  /// Reads the credentials and, for a Unix socket, checks that a server listens. No network traffic
  /// for TCP: the first call connects.
  static Result<std::unique_ptr<Client>> connect(const Connection& connection,
                                                 NoServer no_server = NoServer::kRefuse);
  ~Client();

  /// `observer(true)` when a unary call has taken a second, `observer(false)` when it is over.
  /// Called from a thread of its own. Set it before the first call.
  void on_slow_call(std::function<void(bool)> observer);

  const Connection& connection() const;
  static std::string parent() { return std::string(kParent); }

  Result<v1::Job> submit_job(const v1::SubmitJobRequest& request);
  Result<v1::JobPlan> plan_job(const v1::PlanJobRequest& request);
  Result<v1::Job> get_job(const std::string& name);
  Result<v1::ListJobsResponse> list_jobs(const v1::ListJobsRequest& request);
  Result<v1::Job> cancel_job(const std::string& name);
  Result<v1::Job> pause_job(const std::string& name);
  Result<v1::Job> resume_job(const std::string& name);
  /// The server copies a checkpoint first: the deadline of these two is an hour.
  Result<v1::Job> retry_job(const v1::RetryJobRequest& request);
  Result<v1::Job> fork_job(const v1::ForkJobRequest& request);
  Result<v1::ListQueueResponse> list_queue(const v1::ListQueueRequest& request);
  Result<v1::ListCheckpointsResponse> list_checkpoints(const std::string& name);
  Result<v1::Job> set_job_priority(const std::string& name, int32_t priority);
  Status delete_job(const std::string& name);
  /// Arrays may be planned for long: their deadline is two minutes.
  Result<v1::JobArray> submit_array(const v1::SubmitArrayRequest& request);
  Result<v1::JobArray> get_array(const std::string& name);
  Result<v1::ListArraysResponse> list_arrays(const v1::ListArraysRequest& request);
  Result<v1::JobArray> cancel_array(const std::string& name);
  Result<v1::JobArray> pause_array(const std::string& name);
  Result<v1::JobArray> resume_array(const std::string& name);
  Status delete_array(const std::string& name);
  /// One WatchJob stream, to its end. `on_message` may change its message, and returns false to
  /// leave. A stop, a handler that returns false and the end of the job are OK. UNAVAILABLE also
  /// when the server falls silent for longer than its heartbeats allow. follow.h reconnects.
  Status watch_job(const v1::WatchJobRequest& request, std::stop_token stop,
                   const std::function<bool(v1::WatchJobResponse&)>& on_message);

  Result<v1::Upload> get_upload(const std::string& name, int64_t size_bytes);
  std::unique_ptr<UploadStream> open_upload();
  Result<v1::Dataset> create_dataset(const v1::CreateDatasetRequest& request);
  Result<v1::Dataset> get_dataset(const std::string& name);
  Result<v1::ListDatasetsResponse> list_datasets(const v1::ListDatasetsRequest& request);
  Status delete_dataset(const std::string& name);

  /// Created from an upload; checked by the server before it answers.
  Result<v1::Model> create_model(const v1::CreateModelRequest& request);
  Result<v1::Model> get_model(const std::string& name);
  Result<v1::ListModelsResponse> list_models(const v1::ListModelsRequest& request);
  Status delete_model(const std::string& name);
  Status download_model(const std::string& name, std::stop_token stop,
                        const std::function<Status(const v1::DownloadModelResponse&)>& on_message);
  /// Predictions may be slow: their deadline is kPredictTimeoutMs.
  Result<v1::PredictResponse> predict(const v1::PredictRequest& request);

  /// `on_text` gets each piece as it is generated. A stop is OK. No deadline.
  Status generate(const v1::GenerateRequest& request, std::stop_token stop,
                  const std::function<bool(const v1::GenerateResponse&)>& on_text);
  /// Its deadline is an hour.
  Result<v1::EvaluateResponse> evaluate(const v1::EvaluateRequest& request);

  Result<v1::ServerInfo> get_server_info();
  Result<v1::ListDevicesResponse> list_devices(bool forecasts = false);
  Result<v1::Device> drain_device(const v1::DrainDeviceRequest& request);
  Result<v1::Device> resume_device(const std::string& name);
  /// Its deadline is an hour.
  Result<v1::CollectGarbageResponse> collect_garbage(const v1::CollectGarbageRequest& request);
  /// One Backup stream, to its end; `on_message` ends it by an error. client/lib/backup.h writes
  /// it.
  Status backup(std::stop_token stop,
                const std::function<Status(const v1::BackupResponse&)>& on_message);
  /// grpc.health.v1: true for SERVING. Sends no token.
  Result<bool> check_health();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One UploadFile call (client/lib/upload.h drives it). Not thread-safe.
class UploadStream {
 public:
  virtual ~UploadStream() = default;
  /// False if the stream is broken: close() then returns the reason.
  virtual bool write(const v1::UploadFileRequest& message) = 0;
  /// The same for a chunk. With an `owner`, which keeps `data` in memory, it is not copied.
  virtual bool write_chunk(int64_t offset, std::string_view data, uint32_t crc,
                           std::shared_ptr<const void> owner) = 0;
  /// Ends the stream and waits for the answer.
  virtual Result<v1::Upload> close() = 0;
  /// Breaks it from another thread.
  virtual void cancel() = 0;
};

}  // namespace trainyard::client
