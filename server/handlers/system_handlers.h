// server/handlers/system_handlers.h: SystemService without its transport. Thread-safe.
#pragma once

#include <atomic>
#include <string>

#include "server/config/config.h"
#include "server/dispatch/dispatcher.h"
#include "server/files/disk_watch.h"
#include "server/forecast/cluster_rates.h"
#include "server/forecast/forecaster.h"
#include "server/handlers/unary.h"
#include "server/inventory/inventory.h"
#include "server/store/store.h"
#include "src/base/result.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

/// "Drained by alice: a new fan": why nothing starts on the device.
std::string drain_text(const DeviceDrain& drain);

class SystemHandlers {
 public:
  /// The daemon's parts that these handlers use. They must outlive the handlers.
  struct Parts {
    const Config& config;
    Store& store;
    Inventory& inventory;
    const Dispatcher& dispatcher;
    Forecaster& forecaster;
    ClusterRates& cluster_rates;
    DiskWatch& disk;
    int64_t start_time_us = 0;  // of the daemon
    const std::vector<std::string>& warnings;
    const std::atomic<bool>& draining;
    // Brings what the store says about drained devices to the inventory and the dispatcher.
    std::function<Status()> drains_changed;
  };
  explicit SystemHandlers(const Parts& parts) : parts_(parts) {}
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

  const Parts parts_;
};

}  // namespace trainyard::server
