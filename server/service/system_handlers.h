// server/service/system_handlers.h: SystemService without its transport. Thread-safe.
#pragma once

#include "server/service/context.h"
#include "src/base/result.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

class SystemHandlers {
 public:
  explicit SystemHandlers(ServiceContext& service) : service_(service) {}
  Result<v1::ServerInfo> get_server_info(const v1::GetServerInfoRequest& request) const;
  Result<v1::ListDevicesResponse> list_devices(const v1::ListDevicesRequest& request) const;

 private:
  /// Of its worker, in memory; 0: unknown.
  int64_t measured_bytes(const Job& job) const;

  ServiceContext& service_;
};

}  // namespace trainyard::server
