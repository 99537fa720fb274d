// server/forecast/cluster_rates.h: what jobs will take on the nodes of clusters
// (docs/decisions/0114).
//
// The worker of a job measures its node when the job is over: its outcome is stored, nobody waits
// for it any more, and it has the node's cores for some seconds yet. So the first job that succeeds
// on a kind of node, with a number of threads and a precision, makes the forecasts of later ones.
// One worker of a kind measures at a time, and one that dies while it does changes nothing.
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
  double seconds_max = 3;  // that a worker may measure, about
};

/// What a worker says of its node where a job has ended.
struct NodeUse {
  std::string task, cluster;
  v1::NodeFacts facts;
  bool on_gpus = false;
  int32_t threads = 1;
  v1::Recipe::Precision precision = v1::Recipe::FP32;  // in which it computed
};

/// A job whose time on a cluster is asked for.
struct ClusterQuery {
  std::string key;  // equal where all of the following are
  std::string cluster;
  std::shared_ptr<const RunWork> work;
  bool on_gpus = false;
  int32_t threads = 1;  // of each node
  int32_t nodes = 1;
  int32_t devices = 1;  // GPUs of each node
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  int64_t plan_bytes = 0;
};

/// Thread-safe. Create it before the first change of a job; the store outlives it.
class ClusterRates {
 public:
  ClusterRates(Store& store, std::vector<ClusterConfig> clusters, ClusterRatesOptions options = {},
               const Clock& clock = system_clock());

  /// Reads what the store has. Errors of the store.
  Status open();

  /// A job's outcome is stored, and its worker is still there: what it is to measure, if anything.
  /// The same for the same task again.
  std::optional<v1::CalibrateTask> job_ended(const NodeUse& use);
  /// What that worker has measured. Untrusted: INVALID_ARGUMENT/RATES_INVALID;
  /// FAILED_PRECONDITION/RATES_NOT_ASKED.
  Status take(const std::string& task, std::string_view json);
  /// The worker is gone, with or without rates.
  void worker_gone(const std::string& task);

  /// One forecast for all kinds of node: likely on the one that was seen last, in a range that
  /// covers all.
  v1::Forecast forecast(const ClusterQuery& query);
  /// As Forecaster::step_time.
  Result<TimeRange> step_time(const ClusterQuery& query);
  /// Fills in the kinds of node, the time limit of a start, and with `forecasts` what forecasts
  /// rest on.
  void describe(bool forecasts, v1::Cluster& out);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the store's observer and its answers
};

/// How many starts a run takes of which each may take `limit_seconds`, with what one takes to
/// begin; 0 where that leaves no time for steps.
int32_t starts_within(double limit_seconds, double total_seconds, double start_seconds);

/// "clusters/slurm: 12 min (not counting its queue); name it with resources.cluster." Of a
/// cluster's forecast that is at least twice as fast as the best of `here`; else empty.
std::string cluster_advice(const std::vector<v1::Forecast>& here, const v1::Forecast& cluster);

}  // namespace trainyard::server
