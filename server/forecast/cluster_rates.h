// server/forecast/cluster_rates.h: forecasts the time that jobs take on the nodes of clusters
// (docs/decisions/measuring-cluster-nodes.md).
//
// The worker of a job measures its node after the job has ended: the outcome is stored by then,
// nothing waits for the worker any more, and it has the node's cores for some more seconds. So the
// first job that succeeds on a kind of node, with a number of threads and a precision, makes
// forecasts for later jobs possible. Only one worker per kind measures at a time. A worker that
// dies while it measures changes no rates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/cluster.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/result.h"
#include "src/forecast/forecast.h"
#include "trainyard/v1/system_service.pb.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

struct ClusterRatesOptions {
  double seconds_max = 3;  // about how long a worker may measure
};

/// A worker's report about the node on which its job has ended.
struct NodeUse {
  std::string task, cluster;
  v1::NodeFacts facts;
  bool on_gpus = false;
  int32_t threads = 1;
  v1::Recipe::Precision precision = v1::Recipe::FP32;  // the precision in which the job computed
};

/// A job whose time on a cluster is to be forecast.
struct ClusterQuery {
  std::string key;  // cache key: equal if all following fields are equal
  std::string cluster;
  std::shared_ptr<const RunWork> work;
  bool on_gpus = false;
  int32_t threads = 1;  // per node
  int32_t nodes = 1;
  int32_t devices = 1;  // GPUs per node
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  int64_t plan_bytes = 0;
};

/// Thread-safe. Must be created before the first change of a job. The store must outlive it.
class ClusterRates {
 public:
  ClusterRates(Store& store, std::vector<ClusterConfig> clusters, ClusterRatesOptions options = {},
               const Clock& clock = system_clock());

  /// Reads the stored rates. Returns errors of the store.
  Status open();

  /// Returns the measurement that the job's worker is to make, if any. Must be called after the
  /// job's outcome was stored, while the worker still runs. A repeated call for the same task
  /// returns the same.
  std::optional<v1::CalibrateTask> job_ended(const NodeUse& use);
  /// Stores the rates that the worker measured, which are untrusted. Errors:
  /// INVALID_ARGUMENT/RATES_INVALID; FAILED_PRECONDITION/RATES_NOT_REQUESTED.
  Status take(const std::string& task, std::string_view json);
  /// Must be called when the worker has ended, whether it sent rates or not.
  void worker_gone(const std::string& task);

  /// Returns one forecast for all kinds of node. The likely times are those of the kind on which a
  /// job ended last; the range covers all kinds.
  v1::Forecast forecast(const ClusterQuery& query);
  /// See Forecaster::step_time.
  Result<TimeRange> step_time(const ClusterQuery& query);
  /// Sets the kinds of node and the time limit of an attempt, and, if `forecasts`, the data from
  /// which forecasts are computed.
  void describe(bool forecasts, v1::Cluster& out);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the store's observer and with callbacks
};

/// Returns the number of attempts that a run needs if each may take `limit_seconds`, of which
/// `start_seconds` pass before the first step; 0 if that leaves no time for steps.
int32_t starts_within(double limit_seconds, double total_seconds, double start_seconds);

/// Returns advice such as "clusters/slurm: 12 min (not counting its queue); name it with
/// resources.cluster.", if the cluster's forecast is at least twice as fast as the best of `here`;
/// otherwise empty.
std::string cluster_advice(const std::vector<v1::Forecast>& here, const v1::Forecast& cluster);

}  // namespace trainyard::server
