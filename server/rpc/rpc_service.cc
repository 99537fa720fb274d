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

}  // namespace

void RpcService::add_unary(const char* method, Unary handler) {
  add(method, false, false,
      new grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(std::move(handler)));
}
void RpcService::add_server_stream(const char* method, ServerStream handler) {
  add(method, false, true,
      new grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>(std::move(handler)));
}
void RpcService::add_client_stream(const char* method, ClientStream handler) {
  add(method, true, false,
      new grpc::internal::CallbackClientStreamingHandler<Bytes, Bytes>(std::move(handler)));
}
void RpcService::add_both_stream(const char* method, BothStream handler) {
  add(method, true, true,
      new grpc::internal::CallbackBidiHandler<Bytes, Bytes>(std::move(handler)));
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
