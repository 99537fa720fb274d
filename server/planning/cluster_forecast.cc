#include "server/planning/cluster_forecast.h"

#include <utility>

#include "proto/convert/resources.h"
#include "server/forecast/outcome_history.h"
#include "server/planning/cluster_devices.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

std::string starts_text(const v1::Forecast& f) {
  if (f.time_limit_seconds() <= 0) return "";
  const std::string limit = duration_text(static_cast<double>(f.time_limit_seconds()));
  if (f.starts() == 0) return "; its time limit of " + limit + " leaves no time for steps";
  if (f.starts() == 1) return "";
  return "; its time limit of " + limit + " splits it into " + std::to_string(f.starts()) +
         " starts, each after its own wait in the queue";
}

}  // namespace

ClusterQuery cluster_query(const v1::JobSpec& spec, std::shared_ptr<const RunWork> work,
                           const std::string& plan_key, int64_t plan_bytes) {
  const v1::Resources& resources = spec.resources();
  ClusterQuery query;
  query.cluster = resources.cluster();
  query.on_gpus = resources.device() == v1::Resources::GPU;
  query.threads = resources.threads();
  query.nodes = nodes_of(resources);
  if (query.nodes > 1) {
    RunWork spread = *work;
    spread.spread_over_nodes();
    query.work = std::make_shared<RunWork>(std::move(spread));
  } else {
    query.work = std::move(work);
  }
  query.devices = gpus_of(resources);
  query.precision = spec.recipe().precision();
  query.plan_bytes = plan_bytes;
  query.key = plan_key + "/" + query.cluster + "/" + std::to_string(query.threads) + "/" +
              (query.on_gpus ? "gpu" : "cpu") + "/" + std::to_string(query.nodes) + "/" +
              std::to_string(query.devices) + "/" + std::to_string(plan_bytes);
  return query;
}

void add_cluster_forecast(ClusterRates& rates, const ClusterQuery& query, v1::RunPlan& plan) {
  const v1::Forecast& f = *plan.add_forecasts() = rates.forecast(query);
  std::string advice = "A node of the cluster " + query.cluster + ", as asked";
  if (query.nodes > 1) {
    advice = std::to_string(query.nodes) + " nodes of the cluster " + query.cluster + ", as asked";
  }
  if (f.total_seconds() <= 0) {
    plan.set_device_advice(advice + ".");  // the forecast's basis says why it is unknown
    return;
  }
  plan.set_device_advice(advice + ": " + duration_text(f.total_seconds()) + " there (" +
                         duration_text(f.total_seconds_low()) + " to " +
                         duration_text(f.total_seconds_high()) + ")" + starts_text(f) + ".");
}

Result<std::string> faster_clusters(
    ClusterRates& rates, const ClusterQuestion& question, const std::vector<v1::Forecast>& here,
    const std::function<Result<std::shared_ptr<const RunWork>>(Processor)>& work_on) {
  std::string text;
  const v1::Resources& asked = question.spec.resources();
  const bool any_device =
      asked.device() != v1::Resources::CPU && asked.device() != v1::Resources::GPU;
  if (!any_device || !asked.cluster().empty() || gpus_of(asked) > 1 || asked.exclusive())
    return text;
  for (const ClusterConfig& cluster : question.clusters) {
    v1::JobSpec there = question.spec;
    v1::Resources& resources = *there.mutable_resources();
    resources.set_cluster(cluster.name);
    if (!question.threads_named) resources.clear_threads();
    Violations violations;
    resolve_cluster(question.clusters, resources, violations);
    const bool on_gpus = cluster.gpus_per_node > 0;
    const int64_t bytes = on_gpus ? question.bytes_on_gpu : question.bytes_on_cpu;
    const int64_t room = on_gpus ? cluster.gpu_memory_bytes : cluster.memory_bytes;
    if (!violations.empty() || (room > 0 && bytes > room)) continue;
    ASSIGN_OR_RETURN(std::shared_ptr<const RunWork> work,
                     work_on(on_gpus ? Processor::kGpu : Processor::kCpu));
    const std::string advice = cluster_advice(
        here, rates.forecast(cluster_query(there, std::move(work), question.plan_key, bytes)));
    if (!advice.empty()) text += " " + advice;
  }
  return text;
}

}  // namespace trainyard::server
