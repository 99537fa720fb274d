#include "server/handlers/worker_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "server/handlers/worker_file_streams.h"
#include "server/protocol/enrolment.h"
#include "server/rpc/admitted_peers.h"
#include "server/rpc/rpc_service.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {
namespace {

using Context = grpc::CallbackServerContext;
using Bytes = grpc::ByteBuffer;

/// The number of reports, of all streams, that are not durable yet.
using ReportsInFlight = std::atomic<int64_t>;

/// The daemon's side of a worker's stream. It passes reports on in order. At most
/// kReportsInFlightMax may be pending before the oldest is durable, or one while all streams
/// together have kAllInFlightMax: a thousand workers would fill the store's queue, which then
/// refuses reports, and a stream that waits costs less than one that must be opened again.
/// Acknowledgements are merged, because a number includes all before it.
class ReportReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public CommandSink,
                            public std::enable_shared_from_this<ReportReactor> {
 public:
  ReportReactor(Supervisor& supervisor, Executor& executor, WorkerEndpointKind endpoint,
                std::shared_ptr<ReportsInFlight> all)
      : supervisor_(supervisor), executor_(executor), endpoint_(endpoint), all_(std::move(all)) {}

  void begin() {
    self_ = shared_from_this();
    StartRead(&in_);
  }

  // CommandSink: may be called from any thread, even after the stream has ended.
  void send(const v1::WorkerCommand& command) override {
    const MutexLock lock(mu_);
    commands_.push_back(command);
    write_next();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return end(grpc::Status::OK);  // interrupted: only an outcome ends the attempt
    try {
      v1::WorkerReport report;
      if (Status s = parse_message(in_, report, kReportElementsMax); !s.ok())
        return end(to_grpc_status(s.error()));
      in_.Clear();
      take(std::move(report));
    } catch (const std::exception& e) {
      end(to_grpc_status(internal_error("Report", e.what())));
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return end(grpc::Status::CANCELLED);
    const MutexLock lock(mu_);
    writing_ = false;
    write_next();
  }
  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnDone() override {
    if (!task_.empty()) supervisor_.disconnect(task_, this);
    self_.reset();
  }

 private:
  static constexpr int kReportsInFlightMax = 64;
  static constexpr int64_t kAllInFlightMax = 2048;  // a quarter of the store's queue
  // A dataset's schema may have 262,144 columns, each with statistics and categories.
  static constexpr size_t kReportElementsMax = 4'000'000;

  void take(v1::WorkerReport report) {
    if (task_.empty()) {
      if (Status s = supervisor_.connect(report, shared_from_this(), endpoint_); !s.ok()) {
        return end(to_grpc_status(s.error()));
      }
      task_ = report.task();
    }
    {
      const MutexLock lock(mu_);
      ++in_flight_;
    }
    ++*all_;
    const int64_t number = report.number();
    const auto done = [self = shared_from_this(), number](Status s) { self->taken(number, s); };
    // An outcome may require reading and hashing a large model, which gRPC's threads must not do.
    // It is the last report, so no report can overtake it.
    if (report.has_outcome()) {
      auto shared = std::make_shared<v1::WorkerReport>(std::move(report));
      const bool posted = executor_.post(
          [this, self = self_, shared, done] { supervisor_.report(task_, *shared, done); });
      if (!posted) supervisor_.report(task_, *shared, done);
    } else {
      supervisor_.report(task_, report, done);
    }
    // Read on only now, because the next report, read by another thread, must not overtake this
    // one.
    bool read_on = false;
    {
      const MutexLock lock(mu_);
      read_on = in_flight_ < (*all_ < kAllInFlightMax ? kReportsInFlightMax : 1);
      paused_ = !read_on;  // if set, taken() reads on
    }
    if (read_on) read_next();
  }

  /// Reads the next report, unless the stream has ended: gRPC may already have released it.
  void read_next() {
    const MutexLock lock(mu_);
    if (!finished_) StartRead(&in_);
  }

  /// Called when a report's effects are durable, or were refused.
  void taken(int64_t number, const Status& s) {
    --*all_;
    if (!s.ok()) return end(to_grpc_status(s.error()));
    bool read_on = false;
    {
      const MutexLock lock(mu_);
      TRAINYARD_CHECK(in_flight_ > 0, "a report is taken twice");
      --in_flight_;
      read_on = std::exchange(paused_, false);
      if (number > acknowledged_) {
        acknowledged_ = number;
        acknowledge_ = true;
        write_next();
      }
    }
    if (read_on) read_next();
  }

  void write_next() TRAINYARD_REQUIRES(mu_) {
    if (writing_ || finished_) return;
    v1::WorkerCommand command;
    if (!commands_.empty()) {
      command = std::move(commands_.front());
      commands_.pop_front();
    } else if (std::exchange(acknowledge_, false)) {
      command.set_acknowledged(acknowledged_);
    } else {
      return;
    }
    writing_ = true;
    out_ = to_bytes(command);
    StartWrite(&out_);
  }

  void end(const grpc::Status& status) {
    const MutexLock lock(mu_);
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  Supervisor& supervisor_;
  Executor& executor_;
  const WorkerEndpointKind endpoint_;
  const std::shared_ptr<ReportsInFlight> all_;
  std::shared_ptr<ReportReactor> self_;  // until OnDone
  std::string task_;                     // used only by the reading side
  grpc::ByteBuffer in_;                  // used only by the reading side

  Mutex mu_;
  int in_flight_ TRAINYARD_GUARDED_BY(mu_) = 0;
  bool paused_ TRAINYARD_GUARDED_BY(mu_) = false;  // no read is pending
  int64_t acknowledged_ TRAINYARD_GUARDED_BY(mu_) = 0;
  // `acknowledged_` was not sent yet.
  bool acknowledge_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::deque<v1::WorkerCommand> commands_ TRAINYARD_GUARDED_BY(mu_);  // to be sent
  bool writing_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool finished_ TRAINYARD_GUARDED_BY(mu_) = false;
  grpc::ByteBuffer out_ TRAINYARD_GUARDED_BY(mu_);
};

/// Serves a call on gRPC's thread: `work(request)` returns a Result of the response.
template <typename Request, typename F>
grpc::ServerUnaryReactor* answer_at_once(grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& in, grpc::ByteBuffer& out,
                                         const char* name, const F& work) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  try {
    Request request;
    Status s = parse_message(in, request);
    if (s.ok()) {
      const auto response = work(request);
      if (response.ok()) {
        out = to_bytes(*response);
      } else {
        s = response.error();
      }
    }
    reactor->Finish(s.ok() ? grpc::Status::OK : to_grpc_status(s.error()));
  } catch (const std::exception& e) {
    reactor->Finish(to_grpc_status(internal_error(name, e.what())));
  }
  return reactor;
}

/// The only call of a stranger that is parsed: its five short fields need less than 1 KiB.
constexpr size_t kEnrolBytesMax = 16 << 10;

Error too_large(const grpc::ByteBuffer& in) {
  return make_error(ErrorCode::kInvalidArgument, "REQUEST_TOO_LARGE",
                    "the request has " + std::to_string(in.Length()) + " bytes, expected at most " +
                        std::to_string(kEnrolBytesMax));
}

grpc::ServerUnaryReactor* enrol(Supervisor& supervisor, Context* context, const Bytes* in,
                                Bytes* out) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  try {
    v1::EnrolRequest request;
    Status s = in->Length() <= kEnrolBytesMax ? parse_message(*in, request) : too_large(*in);
    if (!s.ok()) {
      reactor->Finish(to_grpc_status(s.error()));
      return reactor;
    }
    supervisor.enrol(request, [reactor, out](const Status& enrolled) {
      if (enrolled.ok()) *out = to_bytes(v1::EnrolResponse());
      reactor->Finish(enrolled.ok() ? grpc::Status::OK : to_grpc_status(enrolled.error()));
    });
  } catch (const std::exception& e) {
    reactor->Finish(to_grpc_status(internal_error("Enrol", e.what())));
  }
  return reactor;
}

std::unique_ptr<RpcService> worker_service() {
  return std::make_unique<RpcService>(*v1::AttachRequest::descriptor()->file());
}

/// Adds the methods for all workers, local and remote.
void add_methods(RpcService& service, Supervisor& supervisor, Executor& executor,
                 WorkerEndpointKind endpoint) {
  service.add_unary(
      "Attach", [&supervisor, endpoint](Context* context, const Bytes* in, Bytes* out) {
        return answer_at_once<v1::AttachRequest>(
            *context, *in, *out, "Attach",
            [&](const v1::AttachRequest& request) { return supervisor.attach(request, endpoint); });
      });
  const auto in_flight = std::make_shared<ReportsInFlight>(0);
  service.add_both_stream("Report", [&supervisor, &executor, endpoint, in_flight](Context*) {
    auto reactor = std::make_shared<ReportReactor>(supervisor, executor, endpoint, in_flight);
    reactor->begin();
    return reactor.get();
  });
}

/// Checks the credential in a call's metadata. ABORTED/ATTEMPT_FENCED.
grpc::Status admit_remote(Supervisor& supervisor, const Context& context) {
  const auto value = [&context](const char* key) {
    const auto it = context.client_metadata().find(key);
    return it == context.client_metadata().end()
               ? std::string()
               : std::string(it->second.data(), it->second.size());
  };
  const Status admitted =
      supervisor.admit_any_rank(value(kTaskMetadata), value(kCredentialMetadata));
  if (!admitted.ok()) return to_grpc_status(admitted.error());
  admitted_peers().admit(context.peer());
  return grpc::Status::OK;
}

}  // namespace

std::unique_ptr<grpc::Service> make_worker_service(Supervisor& supervisor, Executor& executor) {
  std::unique_ptr<RpcService> service = worker_service();
  add_methods(*service, supervisor, executor, WorkerEndpointKind::kLocal);
  return service;
}

std::unique_ptr<grpc::Service> make_remote_service(Supervisor& supervisor, Executor& executor,
                                                   WorkerFiles& files, Executor& transfers) {
  std::unique_ptr<RpcService> service = worker_service();
  service->add_unary("Enrol", [&supervisor](Context* context, const Bytes* in, Bytes* out) {
    return enrol(supervisor, context, in, out);
  });
  service->set_admission(
      [&supervisor](const Context& context) { return admit_remote(supervisor, context); });
  add_methods(*service, supervisor, executor, WorkerEndpointKind::kRemote);
  service->add_unary("Rendezvous", [&supervisor](Context* context, const Bytes* in, Bytes* out) {
    return answer_at_once<v1::RendezvousRequest>(
        *context, *in, *out, "Rendezvous",
        [&](const v1::RendezvousRequest& request) { return supervisor.rendezvous(request); });
  });
  service->add_unary("SendRates", [&supervisor](Context* context, const Bytes* in, Bytes* out) {
    return answer_at_once<v1::SendRatesRequest>(
        *context, *in, *out, "SendRates",
        [&](const v1::SendRatesRequest& request) { return supervisor.take_rates(request); });
  });
  service->add_unary(
      "ListFiles", [&files, &transfers](Context* context, const Bytes* in, Bytes* out) {
        return list_worker_files(files, transfers, context->DefaultReactor(), in, out);
      });
  service->add_server_stream("PullFile", [&files, &transfers](Context*, const Bytes* in) {
    return open_pull_stream(files, transfers, in);
  });
  service->add_client_stream("PushFiles", [&files, &transfers](Context*, Bytes* out) {
    return open_push_stream(files, transfers, out);
  });
  TRAINYARD_CHECK(service->is_complete(), service->name() + " has a method without a row");
  return service;
}

}  // namespace trainyard::server
