// client/lib/client.h: the Trainyard API as plain calls.
//
// Unary calls are rows of rpcs.h, which say how long a call may take and whether it is repeated
// while the server is UNAVAILABLE: with growing pauses, and never beyond the deadline. Thread-safe.
// gRPC stays out of this header, so that few units pay for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "client/lib/connection.h"
#include "client/lib/names.h"
#include "client/lib/rpcs.h"
#include "src/base/result.h"

namespace trainyard::client {

class UploadStream;

class Client {
 public:
  static constexpr int kRepeatsMax = 4;

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

  /// Makes a unary call of client/lib/rpcs.h. A method that answers with nothing gives a Status.
  template <typename Request, typename Response>
  auto call(const Rpc<Request, Response>& rpc, const Request& request);
  /// The same with a request that has a name alone.
  template <typename Request, typename Response>
  auto call(const Rpc<Request, Response>& rpc, const std::string& name) {
    Request request;
    request.set_name(name);
    return call(rpc, request);
  }

  /// One WatchJob stream, to its end. `on_message` may change its message, and returns false to
  /// leave. A stop, a handler that returns false and the end of the job are OK. UNAVAILABLE also
  /// when the server falls silent for longer than its heartbeats allow. follow.h reconnects.
  Status watch_job(const v1::WatchJobRequest& request, std::stop_token stop,
                   const std::function<bool(v1::WatchJobResponse&)>& on_message);

  std::unique_ptr<UploadStream> open_upload();
  Status download_model(const std::string& name, std::stop_token stop,
                        const std::function<Status(const v1::DownloadModelResponse&)>& on_message);
  /// `on_text` gets each piece as it is generated. A stop is OK. No deadline.
  Status generate(const v1::GenerateRequest& request, std::stop_token stop,
                  const std::function<bool(const v1::GenerateResponse&)>& on_text);
  /// One Backup stream, to its end; `on_message` ends it by an error. client/lib/backup.h writes
  /// it.
  Status backup(std::stop_token stop,
                const std::function<Status(const v1::BackupResponse&)>& on_message);
  /// grpc.health.v1: true for SERVING. Sends no token.
  Result<bool> check_health();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  Status call(const char* method, Repeat repeat, int64_t timeout_ms,
              const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite& response);

  std::unique_ptr<Impl> impl_;
};

template <typename Request, typename Response>
auto Client::call(const Rpc<Request, Response>& rpc, const Request& request) {
  Repeat repeat = rpc.repeat;
  if constexpr (requires { request.request_id(); }) {
    bool only_validates = false;
    if constexpr (requires { request.validate_only(); }) only_validates = request.validate_only();
    if (request.request_id().empty() && !only_validates) repeat = Repeat::kNever;
  }
  Response response;
  Status status = call(rpc.method, repeat, rpc.timeout_ms, request, response);
  if constexpr (std::is_same_v<Response, google::protobuf::Empty>) {
    return status;
  } else {
    return status.ok() ? Result<Response>(std::move(response))
                       : Result<Response>(std::move(status).error());
  }
}

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
