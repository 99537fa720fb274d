// server/rpc/reflection.h: grpc.reflection.v1, by which grpcurl and others learn what is
// served. The library's own plugin serves v1alpha.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>
#include <vector>

namespace trainyard::server {

/// `services`: the full names of all that the server offers beside reflection.
std::unique_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services);

}  // namespace trainyard::server
