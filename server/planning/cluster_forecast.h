// server/planning/cluster_forecast.h: adds to plans how long a job takes in a cluster.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/forecast/cluster_rates.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Returns the query for the forecast of a job whose spec names its cluster, threads and precision.
/// `plan_key` is the key of the job's plan.
ClusterQuery cluster_query(const v1::JobSpec& spec, std::shared_ptr<const RunWork> work,
                           const std::string& plan_key, int64_t plan_bytes);

/// Adds the forecast of a job that requests a cluster to its plan, and describes it in the plan's
/// device advice.
void add_cluster_forecast(ClusterRates& rates, const ClusterQuery& query, v1::RunPlan& plan);

/// A job that may run on any device of this host.
struct ClusterQuestion {
  std::span<const ClusterConfig> clusters;
  const v1::JobSpec& spec;
  bool threads_named = false;  // the user set them; otherwise the cluster's default applies
  std::string plan_key;
  int64_t bytes_on_cpu = 0, bytes_on_gpu = 0;
};
/// Returns a text such as " clusters/slurm: 12 min (not counting its queue); name it with
/// resources.cluster." for each cluster that has room for the unchanged job and would be at least
/// twice as fast as `here` (cluster_advice). Returns an empty text for a job that requests a kind
/// of device or several GPUs. `work_on` returns the job's work on a kind of processor.
Result<std::string> faster_clusters(
    ClusterRates& rates, const ClusterQuestion& question, const std::vector<v1::Forecast>& here,
    const std::function<Result<std::shared_ptr<const RunWork>>(Processor)>& work_on);

}  // namespace trainyard::server
