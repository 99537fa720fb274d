// server/rpc/rpc_service.h: a gRPC service whose methods are registered one by one. Handlers
// receive and return raw bytes (wire.h).
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <string>
#include <utility>

namespace trainyard::server {

class RpcService final : public grpc::Service {
 public:
  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary =
      std::function<grpc::ServerUnaryReactor*(Context*, const Bytes* request, Bytes* response)>;
  using ServerStream = std::function<grpc::ServerWriteReactor<Bytes>*(Context*, const Bytes*)>;
  using ClientStream = std::function<grpc::ServerReadReactor<Bytes>*(Context*, Bytes* response)>;
  using BothStream = std::function<grpc::ServerBidiReactor<Bytes, Bytes>*(Context*)>;

  /// Implements the service with index `index` of a .proto file.
  explicit RpcService(const google::protobuf::FileDescriptor& file, int index = 0)
      : descriptor_(*file.service(index)) {}

  const google::protobuf::ServiceDescriptor& descriptor() const { return descriptor_; }

  /// Decides whether a call may be made, before its messages are read or parsed.
  using Admission = std::function<grpc::Status(const Context&)>;
  /// Sets the admission of the methods that are added afterwards; without one all calls are
  /// admitted.
  void set_admission(Admission admission) { admission_ = std::move(admission); }

  // Each of these registers the handler of a method. The service must have a method with this name
  // and with the same streams. A method without a handler returns UNIMPLEMENTED.
  void add_unary(const char* method, Unary handler);
  void add_server_stream(const char* method, ServerStream handler);
  void add_client_stream(const char* method, ClientStream handler);
  void add_both_stream(const char* method, BothStream handler);

  /// Returns the full name, such as "trainyard.v1.JobService".
  const std::string& name() const { return descriptor_.full_name(); }
  /// Returns whether every method of the service has a handler.
  bool is_complete() const { return std::ssize(paths_) == descriptor_.method_count(); }

 private:
  void add(const char* method, bool client_streams, bool server_streams,
           grpc::internal::MethodHandler* handler);

  const google::protobuf::ServiceDescriptor& descriptor_;
  Admission admission_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to these
};

}  // namespace trainyard::server
