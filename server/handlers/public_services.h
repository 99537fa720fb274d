// server/handlers/public_services.h: the five services of the API, bound to their handlers.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/dispatch/dispatcher.h"
#include "server/events/event_hub.h"
#include "server/files/disk_watch.h"
#include "server/forecast/cluster_rates.h"
#include "server/forecast/forecaster.h"
#include "server/handlers/call_frame.h"
#include "server/housekeeping/housekeeping.h"
#include "server/inventory/inventory.h"
#include "server/processes/ingest.h"
#include "server/processes/one_shot_tasks.h"
#include "server/serving/predict.h"

namespace trainyard::server {

class WatchStreams;

/// The daemon's parts that the services pass to their handlers. They outlive the services.
struct ServiceParts {
  CallFrame& frame;
  const HousekeepingParts& housekeeping;  // has the configuration, paths, clock, files and store
  std::atomic<bool>& backing_up;
  EventHub& hub;
  Inventory& inventory;
  const Dispatcher& dispatcher;
  IngestRunner& ingest;
  PredictRunner& predict;
  OneShotTasks& one_shot_tasks;
  Forecaster& forecaster;
  ClusterRates& cluster_rates;
  DiskWatch& disk;
  const std::vector<std::string>& warnings;  // for ServerInfo
  std::function<Status()> drains_changed;    // SystemParts::drains_changed
  std::function<void()> quotas_changed;      // QuotaParts::quotas_changed
  std::function<Status(const std::vector<std::string>&)> check_devices;  // PeopleParts
  std::function<void()> devices_changed;                                 // PeopleParts
  int64_t start_time_us = 0;
  int64_t backup_stall_ms = 0;     // BackupSource::stall_ms
  int64_t watch_heartbeat_ms = 0;  // tests shorten it
};

/// Owns services and handlers; outlives the server.
class PublicServices {
 public:
  explicit PublicServices(const ServiceParts& parts);
  ~PublicServices();
  std::vector<grpc::Service*> all() const;
  /// Returns the full names, for the health service.
  std::vector<std::string> names() const;
  WatchStreams& watch_streams();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::server
