// server/dispatch/dispatch_options.h: the operator's settings for dispatching, and the clusters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/config/paths.h"
#include "server/inventory/checked_inventory.h"
#include "server/scheduler/project_devices.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class ClusterRates;

struct DispatcherOptions {
  StatePaths paths;
  int threads_per_job = 1;      // for a job that does not set threads
  bool time_algorithms = true;  // Config::time_algorithms
  Policy policy = {};
  /// The interval of scheduling passes while jobs wait and other processes use a device. Nothing
  /// reports when such a process ends.
  int64_t pass_interval_us = CheckedInventory::kBusyRetryUs;
  /// Returns the lists of devices that projects may use; called before each pass.
  std::function<ProjectDevices()> project_devices = [] { return ProjectDevices(); };
};

/// The clusters that accept jobs, and the data with which their workers connect to the daemon.
struct ClusterSetup {
  std::vector<Clusters::Cluster> clusters = {};
  // The functions are called only after the daemon serves. `instance` returns the ID of this state
  // folder, in lower-case letters and digits.
  std::function<std::string()> instance = nullptr;
  std::function<std::string()> attach = nullptr;  // host:port
  std::function<std::string()> certificate_pem = nullptr;
  /// Returns the enrolment secret of a task, the same one at each call.
  std::function<std::string(const std::string& task)> secret = nullptr;
  std::shared_ptr<ClusterRates> rates = nullptr;  // null: nodes are not measured
};

}  // namespace trainyard::server
