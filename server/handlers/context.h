// server/handlers/context.h: what the services share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/config/token.h"
#include "server/dispatch/dispatcher.h"
#include "server/events/event_hub.h"
#include "server/files/disk_watch.h"
#include "server/forecast/cluster_rates.h"
#include "server/forecast/forecaster.h"
#include "server/housekeeping/housekeeping.h"
#include "server/inventory/inventory.h"
#include "server/processes/errands.h"
#include "server/processes/executor.h"
#include "server/processes/ingest.h"
#include "server/serving/predict.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Borrowed by every service; owned, with what it refers to, by the Daemon.
struct ServiceContext {
  const Config& config;
  const StatePaths& paths;
  const Clock& clock;
  Files& files;
  Store& store;
  EventHub& hub;
  Inventory& inventory;
  const Dispatcher& dispatcher;
  IngestRunner& ingest;
  PredictRunner& predict;
  Errands& errands;
  Forecaster& forecaster;
  ClusterRates& cluster_rates;
  Executor& executor;
  DiskWatch& disk;
  Executor& planning;   // for handlers that compute: others do not wait for them
  Executor& arrays;     // for those that compute for many jobs: single ones do not wait for them
  Executor& transfers;  // for streams of files: a slow disk holds up only those
  const Tokens* tokens = nullptr;  // null: none is required
  int64_t start_time_us = 0;
  std::vector<std::string> warnings = {};  // for ServerInfo
  std::atomic<bool> draining{false};
  std::atomic<bool> backing_up{false};  // one at a time
  int64_t backup_stall_ms = 300'000;    // how long its client may take nothing
  std::stop_source drain_stop = {};     // ends what calls compute; requested behind `draining`
  // Called when the store refuses writes permanently. Set before the first call is served.
  std::function<void()> store_failed = [] {};
  // Brings what the store says about drained devices to the inventory and the dispatcher. Set
  // before the first call is served.
  std::function<Status()> drains_changed = [] { return Status(); };
};

inline HousekeepingParts housekeeping_parts(ServiceContext& service) {
  return {service.config, service.paths,    service.clock,     service.files,
          service.store,  service.draining, service.backing_up};
}

}  // namespace trainyard::server
