// The measurement of cluster nodes: after a job has succeeded, its worker measures the node on
// which it ran (server/forecast/cluster_rates.h).
#include "server/dispatch/train_task.h"
#include "server/forecast/cluster_rates.h"

namespace trainyard::server {

std::optional<v1::CalibrateTask> TrainTask::to_measure() {
  if (!options_.cluster_rates) return std::nullopt;
  NodeUse use;
  {
    const MutexLock lock(mu_);
    if (!node_) return std::nullopt;
    use.facts = *node_;
  }
  use.task = task_id();
  use.cluster = job_.spec.resources().cluster();
  use.on_gpus = on_gpus();
  use.threads = options_.threads;
  use.precision = job_.plan.precision();
  return options_.cluster_rates->job_ended(use);
}

Status TrainTask::measured(const std::string& rates) {
  if (!options_.cluster_rates) return TaskOwner::measured(rates);
  return options_.cluster_rates->take(task_id(), rates);
}

}  // namespace trainyard::server
