// server/dispatch/dispatch_options.h: what the operator decides of dispatching, and the clusters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/config/paths.h"
#include "server/inventory/checked_inventory.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class ClusterRates;

struct DispatcherOptions {
  StatePaths paths;
  int threads_per_job = 1;      // for a job that names none
  bool time_algorithms = true;  // Config::time_algorithms
  Policy policy = {};
  /// Between looks while jobs wait beside what other processes hold: nothing tells when they end.
  int64_t look_again_us = CheckedInventory::kBusyRetryUs;
};

/// Clusters that take jobs, and how their workers find the daemon.
struct ClusterSetup {
  std::vector<Clusters::Cluster> clusters = {};
  // Asked once the daemon serves. The instance is this state folder's: small letters and digits.
  std::function<std::string()> instance = nullptr;
  std::function<std::string()> attach = nullptr;  // host:port
  std::function<std::string()> certificate_pem = nullptr;
  /// The enrolment secret of a task: the same whenever it is asked for.
  std::function<std::string(const std::string& task)> secret = nullptr;
  std::shared_ptr<ClusterRates> rates = nullptr;  // null: no node is measured
};

}  // namespace trainyard::server
