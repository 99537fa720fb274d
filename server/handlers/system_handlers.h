// server/handlers/system_handlers.h: SystemService without its transport. Thread-safe.
#pragma once

#include <string>

#include "server/handlers/context.h"
#include "server/handlers/unary.h"
#include "src/base/result.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

/// "Drained by alice: a new fan": why nothing starts on the device.
std::string drain_text(const DeviceDrain& drain);

class SystemHandlers {
 public:
  explicit SystemHandlers(ServiceContext& service) : service_(service) {}
  Result<v1::ServerInfo> get_server_info(const v1::GetServerInfoRequest& request) const;
  Result<v1::ListDevicesResponse> list_devices(const v1::ListDevicesRequest& request) const;
  Result<v1::Device> drain_device(const v1::DrainDeviceRequest& request, const CallInfo& call);
  Result<v1::Device> resume_device(const v1::ResumeDeviceRequest& request);

 private:
  void add_clusters(bool forecasts, v1::ListDevicesResponse& response) const;
  /// Of its worker, in memory; 0: unknown.
  int64_t measured_bytes(const Job& job) const;
  Result<v1::Device> get_device(const std::string& name) const;
  /// What the store knows the device by.
  Result<std::string> key_of(const std::string& name) const;

  ServiceContext& service_;
};

}  // namespace trainyard::server
