#include "server/rpc/rpc_service.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include "src/base/check.h"

namespace trainyard::server {
namespace {

using grpc::internal::RpcMethod;

RpcMethod::RpcType type_of(bool client_streams, bool server_streams) {
  if (client_streams && server_streams) return RpcMethod::BIDI_STREAMING;
  if (client_streams) return RpcMethod::CLIENT_STREAMING;
  return server_streams ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC;
}

/// Ends a stream that was not admitted. Deletes itself in OnDone.
template <typename Reactor>
class RefusedStream final : public Reactor {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

/// Returns a handler of streams that passes on only admitted calls.
template <typename Reactor, typename Handler>
auto admitted(RpcService::Admission admission, Handler handler) {
  return [admission = std::move(admission), handler = std::move(handler)](
             RpcService::Context* context, auto... arguments) -> Reactor* {
    const grpc::Status status = admission ? admission(*context) : grpc::Status::OK;
    if (status.ok()) return handler(context, arguments...);
    return new RefusedStream<Reactor>(status);
  };
}

}  // namespace

void RpcService::add_unary(const char* method, Unary handler) {
  add(method, false, false,
      new grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(
          [admission = admission_, handler = std::move(handler)](Context* context, const Bytes* in,
                                                                 Bytes* out) {
            const grpc::Status status = admission ? admission(*context) : grpc::Status::OK;
            if (status.ok()) return handler(context, in, out);
            grpc::ServerUnaryReactor* const refused = context->DefaultReactor();
            refused->Finish(status);
            return refused;
          }));
}
void RpcService::add_server_stream(const char* method, ServerStream handler) {
  using Reactor = grpc::ServerWriteReactor<Bytes>;
  add(method, false, true,
      new grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>(
          admitted<Reactor>(admission_, std::move(handler))));
}
void RpcService::add_client_stream(const char* method, ClientStream handler) {
  using Reactor = grpc::ServerReadReactor<Bytes>;
  add(method, true, false,
      new grpc::internal::CallbackClientStreamingHandler<Bytes, Bytes>(
          admitted<Reactor>(admission_, std::move(handler))));
}
void RpcService::add_both_stream(const char* method, BothStream handler) {
  using Reactor = grpc::ServerBidiReactor<Bytes, Bytes>;
  add(method, true, true,
      new grpc::internal::CallbackBidiHandler<Bytes, Bytes>(
          admitted<Reactor>(admission_, std::move(handler))));
}

void RpcService::add(const char* method, bool client_streams, bool server_streams,
                     grpc::internal::MethodHandler* handler) {
  const google::protobuf::MethodDescriptor* described = descriptor_.FindMethodByName(method);
  TRAINYARD_CHECK(described != nullptr && described->client_streaming() == client_streams &&
                      described->server_streaming() == server_streams,
                  name() + " has no such method: " + method);
  const std::string& path = paths_.emplace_back("/" + name() + "/" + method);
  // The generated services register a method by the same two calls. gRPC owns the handler.
  AddMethod(new grpc::internal::RpcServiceMethod(path.c_str(),
                                                 type_of(client_streams, server_streams), nullptr));
  MarkMethodRawCallback(static_cast<int>(paths_.size()) - 1, handler);
}

}  // namespace trainyard::server
