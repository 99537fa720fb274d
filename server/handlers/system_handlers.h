// server/handlers/system_handlers.h: the unary methods of SystemService.
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
#include "server/people/people.h"
#include "server/store/store.h"
#include "src/base/result.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

/// Returns why nothing starts on the device, such as "Drained by alice: a new fan.", or "Drained by
/// an operator: a new fan." for everyone but operators.
std::string drain_text(const DeviceDrain& drain, bool with_owner);

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct SystemParts {
  const Config& config;
  Store& store;
  Inventory& inventory;
  const Dispatcher& dispatcher;
  Forecaster& forecaster;
  ClusterRates& cluster_rates;
  DiskWatch& disk;
  const People& people;
  int64_t start_time_us = 0;  // of the daemon
  const std::vector<std::string>& warnings;
  const std::atomic<bool>& draining;
  // Passes the drained devices in the store to the inventory and the dispatcher.
  std::function<Status()> drains_changed;
};

/// Registers the unary methods of SystemService. The handlers are thread-safe.
void add_system_rows(Methods& rows, const SystemParts& parts);

}  // namespace trainyard::server
