// server/planning/job_planner.h: checks and plans a job before it is stored: whether its spec is
// valid, what it will cost, and whether a device of this server could ever run it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/forecast/cluster_rates.h"
#include "server/forecast/forecaster.h"
#include "server/inventory/inventory.h"
#include "server/planning/checked_job.h"
#include "server/planning/run_plans.h"
#include "server/processes/executor.h"
#include "server/processes/one_shot_tasks.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/planning/planner.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

struct PlannedJob {
  v1::JobSpec spec;  // as accepted: full dataset name, thread count and precision filled in
  v1::RunPlan plan;
  DatasetRef dataset;                 // the version that the job uses
  std::string dataset_project;        // the project that shares it; empty: the job's
  std::string dataset_digest;         // names the dataset's folder
  std::string initial_model_id;       // the model in recipe.initial_weights; empty: none
  std::string initial_model_project;  // as dataset_project
  // Why the initial weights are not available (StartingWeights::kMayBeGone).
  std::optional<Error> lacks_weights = {};
  std::vector<Dependency> after;
};

/// The daemon's parts that a JobPlanner refers to. They must outlive it.
struct PlannerParts {
  const Config& config;
  const StatePaths& paths;
  const Clock& clock;
  Store& store;
  Inventory& inventory;
  OneShotTasks& one_shot_tasks;
  Forecaster& forecaster;
  ClusterRates& cluster_rates;
  const People& people;
  Executor& planning;  // finishes plans that a worker has measured
  const std::atomic<bool>& draining;
};

/// Thread-safe. The workspace that a worker has measured for the CPU's kernels is cached; on a GPU
/// it changes with the algorithms that jobs choose. A spec that was just accepted is not checked
/// again until the datasets or the known devices change.
class JobPlanner {
 public:
  explicit JobPlanner(const PlannerParts& parts) : parts_(parts) {}
  /// For SubmitJob: refuses jobs that fit on no device. The kernels' workspace is not known yet and
  /// not counted; the worker adds it to the plan when it starts. For this and the following
  /// functions: CANCELLED/STOPPED soon after `stop` is requested.
  Result<PlannedJob> plan(const std::string& project, const v1::JobSpec& spec,
                          const std::stop_token& stop,
                          StartingWeights weights = StartingWeights::kNeeded);
  /// Returns the result of plan() if it is cached; null otherwise. Neither computes nor waits.
  std::shared_ptr<const PlannedJob> find_accepted(const std::string& project,
                                                  const v1::JobSpec& spec);
  /// Checks a spec that differs from a planned one only in values on which no plan depends. Returns
  /// the error that plan() would, except those that come from the model's graph. `schema` is that
  /// of the spec's dataset.
  Status check_like(const v1::JobSpec& spec, const DatasetSchema& schema);
  /// Returns the schema of a dataset that is READY. UNAVAILABLE/STORAGE_ERROR if it cannot be read
  /// at the moment.
  Result<DatasetSchema> schema_of(const std::string& dataset_digest) const;
  /// For PlanJob: computes the whole response. A worker measures the workspace unless it is known.
  void plan_in_full(const std::string& project, const v1::PlanJobRequest& request,
                    Done<v1::JobPlan> done, const std::stop_token& stop);

 private:
  static constexpr size_t kAcceptedMax = 256, kWorkspacesMax = 256;
  static constexpr size_t kAcceptedBytesMax = 16 << 10;  // of a spec that is cached
  static constexpr int64_t kDevicesKeptUs = 1'000'000;

  struct Planned;

  JobScope scope(const std::string& project) const {
    return {project, parts_.store, parts_.people};
  }
  /// Plans a checked job and writes the choices into it.
  Result<Planned> plan_checked(const std::string& project, CheckedJob job, StartingWeights weights,
                               PlanOptions options, const std::stop_token& stop);
  /// Leaves only the devices that the job's project may use. RESOURCES_IMPOSSIBLE if the job could
  /// never run there.
  Status limit_devices(Planned& planned);
  Result<PlannedJob> plan_uncached(const std::string& project, const v1::JobSpec& spec,
                                   const std::stop_token& stop, StartingWeights weights);
  Result<Planned> plan_request(const std::string& project, const v1::PlanJobRequest& request,
                               const std::stop_token& stop);
  /// Completes the response to PlanJob after a worker has measured the workspace or failed to.
  Result<v1::JobPlan> finish(Planned& planned, const Result<int64_t>& workspace,
                             const std::stop_token& stop);
  /// Adds the forecasts for each kind of device that the job may use, and the advice that follows
  /// from them.
  Status add_forecasts(const Planned& planned, v1::RunPlan& plan, const std::stop_token& stop);
  /// Adds the comparisons of the CPU with the GPUs that the request names.
  Status add_comparisons(const Planned& planned, v1::JobPlan& plan, const std::stop_token& stop);
  /// Returns the workspace of the CPU's kernels, if it was measured; `key` is empty for a GPU.
  std::optional<int64_t> find_workspace(const std::string& key);
  void keep_workspace(const std::string& key, int64_t bytes);
  /// Returns the devices of the cluster that the spec requests, or else devices().
  Devices devices_for(const v1::JobSpec& spec);
  /// Returns the devices, read within the last second: reading them costs more than planning a job.
  Devices devices();
  /// Describes the devices for the planner. The result refers to the job and to this object.
  Machine machine_for(const CheckedJob& job, const Devices& devices);

  const PlannerParts parts_;
  RunPlans run_plans_;
  Mutex mu_;
  Devices devices_ TRAINYARD_GUARDED_BY(mu_);
  int64_t devices_time_us_ TRAINYARD_GUARDED_BY(mu_) = 0;  // steady clock; 0: never read
  // Keyed by project and serialized spec (accepted_key). All were accepted for `devices_` and when
  // the datasets' change counter was `accepted_at_changes_`.
  std::unordered_map<std::string, std::shared_ptr<const PlannedJob>> accepted_
      TRAINYARD_GUARDED_BY(mu_);
  int64_t accepted_at_changes_ TRAINYARD_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, int64_t> workspaces_ TRAINYARD_GUARDED_BY(mu_);  // bytes
};

}  // namespace trainyard::server
