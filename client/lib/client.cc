#include "client/lib/client.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "client/lib/rpc_error.h"
#include "src/base/files.h"
#include "src/base/mutex.h"
#include "src/base/wait_for_stop.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"
#include "trainyard/v1/job_service.grpc.pb.h"
#include "trainyard/v1/model_service.grpc.pb.h"
#include "trainyard/v1/system_service.grpc.pb.h"

namespace trainyard::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// the pause before the first repetition of a call; each further pause is twice as long
constexpr milliseconds kRepeatPause{100};
constexpr milliseconds kRepeatPauseMax{1000};
constexpr milliseconds kSlowCall{1000};
constexpr milliseconds kHealthTimeout{5'000};
constexpr milliseconds kStreamSilenceMax{45'000};  // three heartbeat intervals of the server
constexpr int64_t kCaFileBytesMax = 1 << 20;
constexpr int kMessageBytesMax = 64 << 20;  // of responses; predictions of many classes are large

Result<std::shared_ptr<grpc::Channel>> open_channel(const Connection& connection) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY,
              0);  // ignore http_proxy, which is meant for web traffic
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name, this also is the time limit of one connection attempt, and a busy machine
  // needs time.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  args.SetMaxReceiveMessageSize(kMessageBytesMax);
  args.SetUserAgentPrefix("trainyard/" TRAINYARD_VERSION);
  if (connection.is_unix() || connection.plaintext) {
    if (connection.is_unix()) args.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    return grpc::CreateCustomChannel(connection.server, grpc::InsecureChannelCredentials(), args);
  }
  grpc::SslCredentialsOptions options;
  if (!connection.ca_file.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, read_file(connection.ca_file, kCaFileBytesMax));
  }
  return grpc::CreateCustomChannel(connection.server, grpc::SslCredentials(options), args);
}

/// Cancels a stream on a stop request, or if no message has arrived for kStreamSilenceMax.
class StreamGuard {
 public:
  StreamGuard(grpc::ClientContext& context, const std::stop_token& stop)
      : context_(context),
        on_stop_(stop, Cancel{context}),
        watcher_([this](std::stop_token s) { watch(s); }) {}

  void heard() {
    const MutexLock lock(mu_);
    last_ = Clock::now();
  }
  bool silent() const {
    const MutexLock lock(mu_);
    return silent_;
  }

 private:
  struct Cancel {
    grpc::ClientContext& context;
    void operator()() const { context.TryCancel(); }
  };
  void watch(const std::stop_token& ended) {
    MutexLock lock(mu_);
    while (!ended.stop_requested()) {
      const Clock::time_point until = last_ + kStreamSilenceMax;
      if (Clock::now() >= until) {
        silent_ = true;
        context_.TryCancel();
        return;
      }
      changed_.wait_until(lock, ended, until, [] { return false; });
    }
  }

  grpc::ClientContext& context_;
  mutable Mutex mu_;
  CondVar changed_;
  Clock::time_point last_ TRAINYARD_GUARDED_BY(mu_) = Clock::now();
  bool silent_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::stop_callback<Cancel> on_stop_;
  std::jthread watcher_;  // last member: stops and joins before the others are destroyed
};

/// Calls `observer(true)` when a call has taken kSlowCall, and then `observer(false)` when the call
/// has ended.
class SlowCallNotice {
 public:
  explicit SlowCallNotice(const std::function<void(bool)>& observer) {
    if (!observer) return;
    timer_ = std::jthread([&observer](std::stop_token over) {
      wait_for_stop(over, kSlowCall);
      if (over.stop_requested()) return;
      observer(true);
      // longer than any call; the destructor stops the wait
      wait_for_stop(over, std::chrono::hours(24));
      observer(false);
    });
  }

 private:
  std::jthread timer_;
};

}  // namespace

struct Client::Impl {
  Connection connection;
  std::string authorization;  // "Bearer ...", or empty
  std::function<void(bool)> slow_observer;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::DatasetService::Stub> datasets;
  std::unique_ptr<v1::ModelService::Stub> models;
  std::unique_ptr<v1::SystemService::Stub> system;

  void prepare(grpc::ClientContext& context) const {
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  }

  /// Reads a stream that `open(context)` starts, to its end or to an error of `on_message`.
  template <typename Message, typename Open>
  Status read_stream(const std::stop_token& stop,
                     const std::function<Status(const Message&)>& on_message,
                     const Open& open) const {
    grpc::ClientContext context;
    prepare(context);
    StreamGuard guard(context, stop);
    const auto reader = open(&context);
    Message message;
    Status handled;
    while (handled.ok() && reader->Read(&message)) {
      handled = on_message(message);
      guard.heard();
    }
    if (!handled.ok()) {
      context.TryCancel();
      while (reader->Read(&message)) continue;
    }
    const grpc::Status status = reader->Finish();
    if (!handled.ok()) return handled;
    if (!status.ok()) return to_error(status, connection.server);
    return {};
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
void Client::on_slow_call(std::function<void(bool)> observer) {
  impl_->slow_observer = std::move(observer);
}
const Connection& Client::connection() const { return impl_->connection; }

Result<std::unique_ptr<Client>> Client::connect(const Connection& connection, NoServer no_server) {
  // gRPC's own log lines would mix with ours; the user can enable them with GRPC_VERBOSITY.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  const auto deadline = Clock::now() + milliseconds(connection.timeout_ms);
  Status probe = probe_server(connection);
  while (!probe.ok() && no_server == NoServer::kWait &&
         probe.error().reason == "SERVER_NOT_RUNNING" && Clock::now() < deadline) {
    std::this_thread::sleep_for(kRepeatPause);
    probe = probe_server(connection);
  }
  if (!probe.ok()) return std::move(probe).error();
  auto impl = std::make_unique<Impl>();
  impl->connection = connection;
  if (!connection.token.empty()) {
    impl->authorization = "Bearer " + connection.token;
  } else if (!connection.token_file.empty()) {
    ASSIGN_OR_RETURN(const std::string token, read_token(connection.token_file));
    impl->authorization = "Bearer " + token;
  }
  ASSIGN_OR_RETURN(impl->channel, open_channel(connection));
  impl->jobs = v1::JobService::NewStub(impl->channel);
  impl->datasets = v1::DatasetService::NewStub(impl->channel);
  impl->models = v1::ModelService::NewStub(impl->channel);
  impl->system = v1::SystemService::NewStub(impl->channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Status Client::call(const char* method, Repeat repeat, int64_t timeout_ms,
                    const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite& response) {
  const std::string path = std::string("/trainyard.v1.") + method;
  const grpc::internal::RpcMethod rpc(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC,
                                      impl_->channel);
  const SlowCallNotice notice(impl_->slow_observer);
  const milliseconds timeout(timeout_ms > 0 ? timeout_ms : impl_->connection.timeout_ms);
  const auto deadline = std::chrono::system_clock::now() + timeout;
  milliseconds pause = kRepeatPause;
  for (int attempt = 0;; ++attempt) {
    grpc::ClientContext context;
    impl_->prepare(context);
    context.set_deadline(deadline);
    using Message = google::protobuf::MessageLite;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<Message, Message, Message, Message>(
            impl_->channel.get(), rpc, &context, request, &response);
    if (status.ok()) return {};
    const bool may =
        repeat == Repeat::kUntilDeadline || (repeat == Repeat::kSome && attempt < kRepeatsMax);
    const bool again = may && status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                       std::chrono::system_clock::now() + pause < deadline;
    if (!again) return to_error(status, impl_->connection.server);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kRepeatPauseMax);
  }
}

Status Client::watch_job(const v1::WatchJobRequest& request, std::stop_token stop,
                         const std::function<bool(v1::WatchJobResponse&)>& on_message) {
  grpc::ClientContext context;
  impl_->prepare(context);
  StreamGuard guard(context, stop);
  const auto reader = impl_->jobs->WatchJob(&context, request);
  v1::WatchJobResponse message;
  bool left = false;
  while (reader->Read(&message)) {
    guard.heard();
    if (!on_message(message)) {
      left = true;
      context.TryCancel();
      break;
    }
  }
  // Finish() requires that all messages have been read
  while (left && reader->Read(&message)) continue;
  const grpc::Status status = reader->Finish();
  if (status.ok() || left || stop.stop_requested()) return {};
  if (guard.silent()) {
    return make_error(ErrorCode::kUnavailable, "SERVER_NOT_RESPONDING",
                      "the server at " + impl_->connection.server + " sent nothing for 45 s");
  }
  return to_error(status, impl_->connection.server);
}

namespace {
/// Serializes chunks by hand, so that a file's bytes go from its mapped pages to the socket. A
/// Protobuf message would copy them, and gRPC would copy them again.
class GrpcUploadStream final : public UploadStream {
 public:
  GrpcUploadStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& authorization,
                   std::string server)
      : server_(std::move(server)),
        method_("/trainyard.v1.DatasetService/UploadFile",
                grpc::internal::RpcMethod::CLIENT_STREAMING, channel) {
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    writer_.reset(grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(
        channel.get(), method_, &context_, &response_));
  }
  bool write(const v1::UploadFileRequest& message) override {
    const grpc::Slice bytes(message.SerializeAsString());
    return writer_->Write(grpc::ByteBuffer(&bytes, 1));
  }
  bool write_chunk(int64_t offset, std::string_view data, uint32_t crc,
                   std::shared_ptr<const void> owner) override {
    using Owner = std::shared_ptr<const void>;
    v1::UploadFileRequest::Chunk rest;  // all fields except the data
    rest.set_offset(offset);
    rest.set_crc32c(crc);
    std::string tail = rest.SerializeAsString();
    const std::string data_head =
        head_of(v1::UploadFileRequest::Chunk::kDataFieldNumber, data.size());
    const std::string head = head_of(v1::UploadFileRequest::kChunkFieldNumber,
                                     data_head.size() + data.size() + tail.size()) +
                             data_head;
    const grpc::Slice slices[] = {
        grpc::Slice(head),
        owner ? grpc::Slice(
                    const_cast<char*>(data.data()), data.size(),  // gRPC only reads the bytes
                    [](void* o) { delete static_cast<Owner*>(o); }, new Owner(std::move(owner)))
              : grpc::Slice(data.data(), data.size()),
        grpc::Slice(tail)};
    return writer_->Write(grpc::ByteBuffer(slices, 3));
  }
  Result<v1::Upload> close() override {
    writer_->WritesDone();
    const grpc::Status status = writer_->Finish();
    if (!status.ok()) return to_error(status, server_);
    return response_;
  }
  void cancel() override { context_.TryCancel(); }

 private:
  /// Returns the tag and length that precede a length-delimited field of `size` bytes.
  static std::string head_of(int field, size_t size) {
    std::string head;
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream coded(&stream);
    constexpr uint32_t kLengthDelimited = 2;
    coded.WriteTag(static_cast<uint32_t>(field) << 3 | kLengthDelimited);
    coded.WriteVarint64(size);
    coded.Trim();
    return head;
  }

  std::string server_;
  grpc::internal::RpcMethod method_;
  grpc::ClientContext context_;
  v1::Upload response_;
  std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> writer_;
};
}  // namespace

std::unique_ptr<UploadStream> Client::open_upload() {
  return std::make_unique<GrpcUploadStream>(impl_->channel, impl_->authorization,
                                            impl_->connection.server);
}
Status Client::download_model(
    const std::string& name, std::stop_token stop,
    const std::function<Status(const v1::DownloadModelResponse&)>& on_message) {
  v1::DownloadModelRequest request;
  request.set_name(name);
  return impl_->read_stream<v1::DownloadModelResponse>(
      stop, on_message,
      [&](grpc::ClientContext* c) { return impl_->models->DownloadModel(c, request); });
}
Status Client::backup(std::stop_token stop,
                      const std::function<Status(const v1::BackupResponse&)>& on_message) {
  return impl_->read_stream<v1::BackupResponse>(stop, on_message, [&](grpc::ClientContext* c) {
    return impl_->system->Backup(c, v1::BackupRequest());
  });
}
Status Client::generate(const v1::GenerateRequest& request, std::stop_token stop,
                        const std::function<bool(const v1::GenerateResponse&)>& on_text) {
  grpc::ClientContext context;
  impl_->prepare(context);
  const std::stop_callback on_stop(stop, [&context] { context.TryCancel(); });
  const auto reader = impl_->models->Generate(&context, request);
  v1::GenerateResponse piece;
  bool left = false;
  while (reader->Read(&piece)) {
    if (left || on_text(piece)) continue;
    left = true;
    context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (status.ok() || left || stop.stop_requested()) return {};
  return to_error(status, impl_->connection.server);
}

Result<bool> Client::check_health() {
  // An empty HealthCheckRequest has zero bytes; HealthCheckResponse{SERVING} is field 1, a varint,
  // with value 1.
  grpc::GenericStub stub(impl_->channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kHealthTimeout);
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return to_error(status, impl_->connection.server);
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == "\x08\x01";
}

}  // namespace trainyard::client
