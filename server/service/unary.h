// server/service/unary.h: the frame around every unary handler: token, parse, strict check, run on
// the executor, one catch, one mapping of errors. Handlers themselves know no gRPC.
#pragma once

#include <google/protobuf/empty.pb.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "server/service/auth.h"
#include "server/service/context.h"
#include "server/service/status.h"
#include "server/service/wire.h"

namespace trainyard::server {

/// One call's answer, given exactly once: if everyone lets go of it without an answer, the caller
/// still gets one.
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

/// `handler(const Request&, Done<Response>)` runs on the executor and may answer later, from any
/// thread.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* serve_later(ServiceContext& service, const char* method,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* in, grpc::ByteBuffer* out,
                                      Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto answer = std::make_shared<Answer<Response>>(service, method, reactor, out);
  if (Status s = admit(*context, service.token); !s.ok()) {
    answer->give(s.error());
    return reactor;
  }
  const bool posted =
      service.executor.post([method, context, in, answer, handler = std::move(handler)] {
        try {
          if (context->IsCancelled()) {
            return answer->give(
                make_error(ErrorCode::kCancelled, "CALL_CANCELLED", "the caller gave up"));
          }
          Request request;
          if (Status s = parse_request(*in, request); !s.ok()) return answer->give(s.error());
          handler(request,
                  Done<Response>([answer](Result<Response> response) { answer->give(response); }));
        } catch (const std::exception& e) {
          answer->give(internal_error(method, e.what()));
        }
      });
  if (!posted) answer->give(service.draining ? draining_error() : busy_error());
  return reactor;
}

/// `handler(const Request&) -> Result<Response>`.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* serve(ServiceContext& service, const char* method,
                                grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                                grpc::ByteBuffer* out, Handler handler) {
  return serve_later<Request, Response>(
      service, method, context, in, out,
      [handler = std::move(handler)](const Request& request, const Done<Response>& done) {
        done(handler(request));
      });
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
