// server/handlers/public_services.h: the four services of the API, bound to their handlers.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "server/handlers/context.h"

namespace trainyard::server {

class WatchStreams;

/// Owns services and handlers; outlives the server. Tests shorten the heartbeat.
class PublicServices {
 public:
  explicit PublicServices(ServiceContext& service, int64_t watch_heartbeat_ms = 15'000);
  ~PublicServices();
  std::vector<grpc::Service*> all() const;
  /// Full names, for the health service.
  std::vector<std::string> names() const;
  WatchStreams& watch_streams();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::server
