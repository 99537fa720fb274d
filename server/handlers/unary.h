// server/handlers/unary.h: the code around every unary handler (checks the token, parses the
// request, refuses unknown fields, runs the handler on an executor, catches exceptions, maps
// errors), and the class that registers handlers. Handlers themselves do not depend on gRPC.
#pragma once

#include <google/protobuf/empty.pb.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "server/handlers/access.h"
#include "server/handlers/audited_call.h"
#include "server/handlers/call_frame.h"
#include "server/rpc/auth.h"
#include "server/rpc/rpc_service.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "server/store/done.h"
#include "src/base/check.h"
#include "src/base/stop.h"

namespace trainyard::server {

/// gRPC's object for one call.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(const std::stop_token& drain)
      : on_drain_(drain, [this] { stop_.request_stop(); }) {}
  /// Its stop is requested when the response is no longer needed: the caller has disconnected, the
  /// deadline has passed, or the daemon drains.
  std::stop_token stop() const { return stop_.get_token(); }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::stop_source stop_;
  // Destroyed first, because it uses stop_.
  const std::stop_callback<std::function<void()>> on_drain_;
};

/// Facts of a call that are not in its request.
struct CallInfo {
  Principal principal;  // who calls; principal.person owns what the call creates
  // UnaryCall::stop(). A handler that computes must return CANCELLED/STOPPED (src/base/stop.h) soon
  // after a stop is requested.
  std::stop_token stop;
  Rights rights = {};  // from the access table
};

/// Sends the response of one call exactly once: if it is destroyed without a response, the caller
/// receives an internal error.
template <typename Response>
class Answer {
 public:
  Answer(CallFrame& frame, const char* method, const grpc::CallbackServerContext& context,
         grpc::ServerUnaryReactor* reactor, grpc::ByteBuffer* out)
      : frame_(frame),
        method_(method),
        reactor_(reactor),
        out_(out),
        audit_(frame, context, method) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (reactor_ != nullptr) give(internal_error(method_, "the handler gave no answer"));
  }
  /// Records the call in the audit table and checks whether the caller may make it, before its
  /// handler runs. Returns false after a refusal, which has then been given.
  bool let_in(const google::protobuf::Message& request, CallInfo& call) {
    audit_.begin(request, call.principal);
    const Result<Rights> rights = frame_.access.check(method_, request, call.principal);
    if (!rights.ok()) {
      give(rights.error());
      return false;
    }
    call.rights = *rights;
    return true;
  }
  void give(const Result<Response>& response) {
    grpc::ServerUnaryReactor* reactor = std::exchange(reactor_, nullptr);
    if (reactor == nullptr) return;
    if (!response.ok()) {
      audit_.end(response.error().reason);
      if (response.error().reason == "STORE_FAILED") frame_.store_failed();
      if (response.error().reason == kStopped) {
        return reactor->Finish(
            to_grpc_status(frame_.draining ? draining_error() : caller_left_error()));
      }
      return reactor->Finish(to_grpc_status(response.error()));
    }
    audit_.end_well(*response);
    *out_ = to_bytes(*response);
    reactor->Finish(grpc::Status::OK);
  }

 private:
  CallFrame& frame_;
  const char* const method_;
  grpc::ServerUnaryReactor* reactor_;  // null after the response
  grpc::ByteBuffer* const out_;
  AuditedCall audit_;
};

/// Longer requests are never passed to a `quick` handler (serve()).
inline constexpr size_t kQuickRequestBytesMax = 16 << 10;

/// Serves one call: `handler(const Request&, const CallInfo&, Done<Response>)` runs on `on` and may
/// respond later, from any thread. `quick(const Request&, const CallInfo&, Done<Response>) ->
/// bool`, unless it is null, is called first, on gRPC's thread: it must neither compute nor wait,
/// and returns whether it handles the call. Before either of them runs, the call has been recorded
/// and checked against the access table.
template <typename Request, typename Response, typename Handler, typename Quick>
grpc::ServerUnaryReactor* serve(CallFrame& frame, const char* method,
                                grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                                grpc::ByteBuffer* out, const Handler& handler, const Quick& quick,
                                Executor& on) {
  auto* const reactor = new UnaryCall(frame.drain_stop.get_token());  // deletes itself
  auto answer = std::make_shared<Answer<Response>>(frame, method, *context, reactor, out);
  Result<Principal> caller = admit(*context, frame.people);
  if (!caller.ok()) {
    answer->give(caller.error());
    return reactor;
  }
  CallInfo call{std::move(*caller), reactor->stop()};
  const Done<Response> done([answer](Result<Response> response) { answer->give(response); });
  if constexpr (!std::is_null_pointer_v<Quick>) {
    try {
      Request request;
      if (in->Length() <= kQuickRequestBytesMax && parse_request(*in, request).ok()) {
        if (!answer->let_in(request, call) || quick(request, call, done)) return reactor;
      }
    } catch (const std::exception& e) {
      answer->give(internal_error(method, e.what()));
      return reactor;
    }
  }
  const bool posted =
      on.post([method, context, in, answer, done, call = std::move(call), &handler]() mutable {
        try {
          if (context->IsCancelled()) {
            return answer->give(caller_left_error());
          }
          Request request;
          if (Status s = parse_request(*in, request); !s.ok()) return answer->give(s.error());
          if (answer->let_in(request, call)) handler(request, call, done);
        } catch (const std::exception& e) {
          answer->give(internal_error(method, e.what()));
        }
      });
  if (!posted) answer->give(frame.draining ? draining_error() : busy_error());
  return reactor;
}

namespace detail {
/// Deduces the request and the result type from a handler's signature.
template <typename T>
struct HandlerOf;
template <typename R, typename Q, typename... Rest>
struct HandlerOf<R (*)(const Q&, Rest...)> {
  using Request = Q;
  using Returned = R;
  using Last = std::tuple_element_t<sizeof...(Rest), std::tuple<Q, std::decay_t<Rest>...>>;
};
template <typename R, typename Parts, std::derived_from<google::protobuf::Message> Q,
          typename... Rest>
struct HandlerOf<R (*)(const Parts&, const Q&, Rest...)> : HandlerOf<R (*)(const Q&, Rest...)> {};
template <typename H, typename R, typename Q, typename... Rest>
struct HandlerOf<R (H::*)(const Q&, Rest...)> : HandlerOf<R (*)(const Q&, Rest...)> {};

template <typename Returned, typename Last>
struct ResponseOf;
template <typename R, typename Last>
struct ResponseOf<Result<R>, Last> {
  using Type = R;
};
template <typename Last>
struct ResponseOf<Status, Last> {
  using Type = google::protobuf::Empty;
};
template <typename R>
struct ResponseOf<void, Done<R>> {
  using Type = R;
};
}  // namespace detail

/// Registers functions as the unary methods of a service, which must outlive the server. A function
/// takes the daemon's parts that it uses, if any, a Request and, if it needs one, a CallInfo. It
/// returns a Result<Response>, or a Status if the method's response is empty, or it takes a
/// Done<Response> as its last argument and responds later. It runs on the frame's executor, or on
/// `on`.
class Methods {
 public:
  Methods(CallFrame& frame, RpcService& rpc) : frame_(frame), rpc_(rpc) {}

  template <typename Function>
  void add(const char* name, Function function) {
    add_row<Function>(name, function, nullptr, frame_.executor);
  }
  /// `parts` is the function's first argument, or the object whose member function it is.
  template <typename Parts, typename Function>
  void add(const char* name, Parts& parts, Function function) {
    add(name, parts, function, frame_.executor);
  }
  template <typename Parts, typename Function>
  void add(const char* name, Parts& parts, Function function, Executor& on) {
    add_row<Function>(name, std::bind_front(function, std::ref(parts)), nullptr, on);
  }
  /// `quick` is the function that serve() calls first.
  template <typename Parts, typename Function, typename Quick>
  void add(const char* name, Parts& parts, Function function, Executor& on, Quick quick) {
    add_row<Function>(name, std::bind_front(function, std::ref(parts)),
                      std::bind_front(quick, std::ref(parts)), on);
  }

 private:
  template <typename Function, typename Callable, typename Quick>
  void add_row(const char* name, Callable callable, Quick quick, Executor& on) {
    using Traits = detail::HandlerOf<Function>;
    using Request = typename Traits::Request;
    using Response =
        typename detail::ResponseOf<typename Traits::Returned, typename Traits::Last>::Type;
    if constexpr (!std::is_null_pointer_v<Quick>) {
      const AccessRow* const row = find_access_row(name);
      TRAINYARD_CHECK(
          row != nullptr && row->need != AccessNeed::kOwner,
          std::string(name) + " looks up an owner, for which gRPC's thread cannot wait");
    }
    const auto handler = [callable](const Request& request, const CallInfo& call,
                                    const Done<Response>& done) {
      const auto respond = [&done](auto result) {
        if constexpr (std::is_same_v<decltype(result), Status>) {
          done(result.ok() ? Result<Response>(Response()) : Result<Response>(result.error()));
        } else {
          done(std::move(result));
        }
      };
      if constexpr (std::is_invocable_v<Callable, const Request&, const CallInfo&,
                                        Done<Response>>) {
        callable(request, call, done);
      } else if constexpr (std::is_invocable_v<Callable, const Request&, Done<Response>>) {
        callable(request, done);
      } else if constexpr (std::is_invocable_v<Callable, const Request&, const CallInfo&>) {
        respond(callable(request, call));
      } else {
        respond(callable(request));
      }
    };
    rpc_.add_unary(name, [&frame = frame_, name, handler, quick, &on](
                             grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                             grpc::ByteBuffer* out) {
      return serve<Request, Response>(frame, name, context, in, out, handler, quick, on);
    });
  }

  CallFrame& frame_;
  RpcService& rpc_;
};

}  // namespace trainyard::server
