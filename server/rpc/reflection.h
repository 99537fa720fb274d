// server/rpc/reflection.h: the service grpc.reflection.v1, with which grpcurl and other tools list
// the server's services. The library's own plugin serves v1alpha.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>
#include <vector>

namespace trainyard::server {

/// `services` has the full names of all services of the server except reflection.
std::unique_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services);

}  // namespace trainyard::server
