// server/handlers/unary.h: the frame around every unary handler: token, parse, strict check, run on
// the executor, one catch, one mapping of errors. Handlers themselves do not know gRPC.
#pragma once

#include <google/protobuf/empty.pb.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "server/handlers/context.h"
#include "server/rpc/auth.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "src/base/stop.h"

namespace trainyard::server {

/// The library's side of one call.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(const std::stop_token& drain)
      : on_drain_(drain, [this] { stop_.request_stop(); }) {}
  /// Stopped when nobody waits for the answer any more: the caller has left, its deadline has
  /// passed, or the daemon drains.
  std::stop_token stop() const { return stop_.get_token(); }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::stop_source stop_;
  const std::stop_callback<std::function<void()>> on_drain_;  // ends first: it uses stop_
};

/// One call's answer, given exactly once: if it is destroyed without an answer, the caller still
/// gets one.
template <typename Response>
class Answer {
 public:
  Answer(ServiceContext& service, const char* method, grpc::ServerUnaryReactor* reactor,
         grpc::ByteBuffer* out)
      : service_(service), method_(method), reactor_(reactor), out_(out) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (reactor_ != nullptr) give(internal_error(method_, "the handler gave no answer"));
  }
  void give(const Result<Response>& response) {
    grpc::ServerUnaryReactor* reactor = std::exchange(reactor_, nullptr);
    if (reactor == nullptr) return;
    if (!response.ok()) {
      if (response.error().reason == "STORE_FAILED") service_.store_failed();
      if (response.error().reason == kStopped) {
        return reactor->Finish(
            to_grpc_status(service_.draining ? draining_error() : caller_left_error()));
      }
      return reactor->Finish(to_grpc_status(response.error()));
    }
    *out_ = to_bytes(*response);
    reactor->Finish(grpc::Status::OK);
  }

 private:
  ServiceContext& service_;
  const char* const method_;
  grpc::ServerUnaryReactor* reactor_;  // null once answered
  grpc::ByteBuffer* const out_;
};

/// Longer requests are never tried at once.
inline constexpr size_t kQuickRequestBytesMax = 16 << 10;

/// `handler(const Request&, Done<Response>)` runs on the executor and may answer later, from any
/// thread. One that computes also takes UnaryCall::stop(), answers CANCELLED/STOPPED
/// (src/base/stop.h) soon after it is requested, and runs on the executor for those.
/// `on` is another executor to run it on.
/// `quick(const Request&, Done<Response>) -> bool` is tried before it, on the library's thread: it
/// neither computes nor waits, and says whether it takes the call.
template <typename Request, typename Response, typename Handler, typename Quick = std::nullptr_t>
grpc::ServerUnaryReactor* serve_later(ServiceContext& service, const char* method,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* in, grpc::ByteBuffer* out,
                                      Handler handler, Quick quick = nullptr,
                                      Executor* on = nullptr) {
  auto* const reactor = new UnaryCall(service.drain_stop.get_token());  // deletes itself
  auto answer = std::make_shared<Answer<Response>>(service, method, reactor, out);
  if (Status s = admit(*context, service.tokens); !s.ok()) {
    answer->give(s.error());
    return reactor;
  }
  const Done<Response> done([answer](Result<Response> response) { answer->give(response); });
  if constexpr (!std::is_null_pointer_v<Quick>) {
    try {
      Request request;
      if (in->Length() <= kQuickRequestBytesMax && parse_request(*in, request).ok() &&
          quick(request, done)) {
        return reactor;
      }
    } catch (const std::exception& e) {
      answer->give(internal_error(method, e.what()));
      return reactor;
    }
  }
  constexpr bool kComputes =
      std::invocable<Handler, const Request&, Done<Response>, std::stop_token>;
  Executor& executor = on != nullptr ? *on : kComputes ? service.planning : service.executor;
  const bool posted = executor.post(
      [method, context, in, answer, done, stop = reactor->stop(), handler = std::move(handler)] {
        try {
          if (context->IsCancelled()) {
            return answer->give(caller_left_error());
          }
          Request request;
          if (Status s = parse_request(*in, request); !s.ok()) return answer->give(s.error());
          if constexpr (kComputes) {
            handler(request, done, stop);
          } else {
            handler(request, done);
          }
        } catch (const std::exception& e) {
          answer->give(internal_error(method, e.what()));
        }
      });
  if (!posted) answer->give(service.draining ? draining_error() : busy_error());
  return reactor;
}

/// `handler(const Request&) -> Result<Response>`; it may take UnaryCall::stop(), as above.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* serve(ServiceContext& service, const char* method,
                                grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                                grpc::ByteBuffer* out, Handler handler) {
  if constexpr (std::invocable<Handler, const Request&, std::stop_token>) {
    return serve_later<Request, Response>(
        service, method, context, in, out,
        [handler = std::move(handler)](const Request& request, const Done<Response>& done,
                                       const std::stop_token& stop) {
          done(handler(request, stop));
        });
  } else {
    return serve_later<Request, Response>(
        service, method, context, in, out,
        [handler = std::move(handler)](const Request& request, const Done<Response>& done) {
          done(handler(request));
        });
  }
}

/// `handler(const Request&) -> Status`, for methods that answer with nothing.
template <typename Request, typename Handler>
grpc::ServerUnaryReactor* serve_empty(ServiceContext& service, const char* method,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* in, grpc::ByteBuffer* out,
                                      Handler handler) {
  return serve<Request, google::protobuf::Empty>(
      service, method, context, in, out,
      [handler = std::move(handler)](const Request& request) -> Result<google::protobuf::Empty> {
        if (Status s = handler(request); !s.ok()) return s.error();
        return google::protobuf::Empty();
      });
}

}  // namespace trainyard::server
