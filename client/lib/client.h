// client/lib/client.h: the Trainyard API as plain calls.
//
// Unary calls are defined by rows of rpcs.h, with their deadline and whether they are repeated
// while the server is UNAVAILABLE (with growing pauses, and never beyond the deadline).
// Thread-safe. This header does not include gRPC, whose headers are slow to compile.
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

  /// Selects how connect() reacts if no server listens on the Unix socket.
  enum class NoServer {
    kRefuse,
    kWait,  // the server may be restarting: wait up to the timeout of a call
  };
  /// Reads the credentials and, for a Unix socket, checks that a server listens. For TCP it causes
  /// no network traffic: the first call connects.
  static Result<std::unique_ptr<Client>> connect(const Connection& connection,
                                                 NoServer no_server = NoServer::kRefuse);
  ~Client();

  /// Registers an observer: `observer(true)` is called when a unary call has taken a second, and
  /// `observer(false)` when that call is over, from a separate thread. Must be set before the first
  /// call.
  void on_slow_call(std::function<void(bool)> observer);

  const Connection& connection() const;
  /// Returns the project of names without one, "projects/default".
  std::string parent() const { return connection().parent(); }

  /// Makes a unary call of client/lib/rpcs.h. Returns the response, or only a Status if the
  /// response is empty.
  template <typename Request, typename Response>
  auto call(const Rpc<Request, Response>& rpc, const Request& request);
  /// Makes a call whose request consists of a name.
  template <typename Request, typename Response>
  auto call(const Rpc<Request, Response>& rpc, const std::string& name) {
    Request request;
    request.set_name(name);
    return call(rpc, request);
  }

  /// Reads one WatchJob stream to its end. `on_message` may modify its message, and returns false
  /// to end the stream. A stop request, false from `on_message` and the end of the job are OK. Also
  /// returns UNAVAILABLE if the server is silent for longer than three heartbeat intervals.
  /// follow_job() in follow.h reconnects.
  Status watch_job(const v1::WatchJobRequest& request, std::stop_token stop,
                   const std::function<bool(v1::WatchJobResponse&)>& on_message);

  std::unique_ptr<UploadStream> open_upload();
  Status download_model(const std::string& name, std::stop_token stop,
                        const std::function<Status(const v1::DownloadModelResponse&)>& on_message);
  /// Calls `on_text` with each piece of text as it is generated. A stop request is OK. Has no
  /// deadline.
  Status generate(const v1::GenerateRequest& request, std::stop_token stop,
                  const std::function<bool(const v1::GenerateResponse&)>& on_text);
  /// Reads one Backup stream to its end, or to an error of `on_message`. client/lib/backup.h writes
  /// the archive.
  Status backup(std::stop_token stop,
                const std::function<Status(const v1::BackupResponse&)>& on_message);
  /// Calls grpc.health.v1; true if the status is SERVING. Sends no token.
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

/// One UploadFile call, used by client/lib/upload.h. Not thread-safe.
class UploadStream {
 public:
  virtual ~UploadStream() = default;
  /// Returns false if the stream is broken; close() then returns the reason.
  virtual bool write(const v1::UploadFileRequest& message) = 0;
  /// Writes a chunk. With an `owner`, which keeps `data` in memory, the data is not copied.
  virtual bool write_chunk(int64_t offset, std::string_view data, uint32_t crc,
                           std::shared_ptr<const void> owner) = 0;
  /// Ends the stream and waits for the response.
  virtual Result<v1::Upload> close() = 0;
  /// Cancels the call; may be called from another thread.
  virtual void cancel() = 0;
};

}  // namespace trainyard::client
