// server/planning/job_planner.h: everything that can be known about a job before it is stored:
// whether its spec is valid, what it will cost, and whether a device of this server could ever run
// it.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/forecast/cluster_rates.h"
#include "server/forecast/forecaster.h"
#include "server/inventory/inventory.h"
#include "server/planning/job_planner.h"
#include "server/planning/memory_fit.h"
#include "server/planning/sharding_choice.h"
#include "server/processes/errands.h"
#include "server/processes/executor.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/forecast/forecast.h"
#include "src/plan/device_traits.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// Thread-safe. Plans are pure functions of (dataset, model, recipe, GPUs, traits of the device),
/// so the most recent are cached: a sweep of many jobs plans each shape once. So is what a worker
/// has measured of the CPU's kernels; on a GPU it changes with the algorithms that jobs choose. A
/// spec that was just accepted is not looked at again as long as the datasets and what is known of
/// the devices stay.
class FormerPlanner {
 public:
  /// The answer to PlanJob.
  Result<v1::JobPlan> answer(const v1::PlanJobRequest& request, const Devices& devices,
                             const Result<int64_t>& workspace, const std::stop_token& stop);
  explicit FormerPlanner(const PlannerParts& parts) : parts_(parts) {}
  /// For a submit: refuses jobs that fit on no device. The kernels' workspace is still unknown and
  /// not counted; the worker adds it to the plan when it starts.
  /// Here and below: CANCELLED/STOPPED soon after `stop` is requested.
  Result<PlannedJob> plan(const v1::JobSpec& spec, const std::stop_token& stop,
                          StartingWeights weights = StartingWeights::kNeeded);
  /// What plan() would answer, if that is known; null otherwise. Neither computes nor waits.
  std::shared_ptr<const PlannedJob> find_accepted(const v1::JobSpec& spec);
  /// What plan() would refuse of a spec that differs from a planned one only in values that no plan
  /// depends on: everything but what comes of the model's graph. `schema` is that of its dataset.
  Status check_like(const v1::JobSpec& spec, const DatasetSchema& schema);
  /// Of a dataset that is READY. UNAVAILABLE/STORAGE_ERROR if it cannot be read just now.
  Result<DatasetSchema> schema_of(const std::string& dataset_digest) const;
  /// For PlanJob: the whole answer. A worker measures the workspace, unless that is known.
  void plan_in_full(const v1::PlanJobRequest& request, Done<v1::JobPlan> done,
                    const std::stop_token& stop);

 public:
  static constexpr size_t kPlansKeptMax = 256;
  static constexpr size_t kAcceptedBytesMax = 16 << 10;  // of a spec that is kept
  static constexpr int64_t kDevicesKeptUs = 1'000'000;

  struct CheckedJob;
  struct FullPlan;

  Result<CheckedJob> check(const v1::JobSpec& spec,
                           StartingWeights weights = StartingWeights::kNeeded) const;
  Result<PlannedJob> plan_anew(const v1::JobSpec& spec, const std::stop_token& stop,
                               StartingWeights weights);
  /// Writes the number that `batch_size: auto` stands for into both forms of the job's spec.
  Status choose_batch(CheckedJob& job, const Devices& devices, const std::stop_token& stop);
  /// A plan, and what its time depends on.
  struct KeptPlan {
    std::string key;
    v1::RunPlan plan;
    std::shared_ptr<const RunWork> work;
  };
  Result<KeptPlan> plan_on_dataset(const v1::JobSpec& spec, const Dataset& dataset,
                                   DeviceTraits traits, const std::stop_token& stop);
  /// Adds the forecasts for each kind of device that the job may use, and what they say.
  /// `planned` is the plan for `traits`.
  Status add_forecasts(const CheckedJob& job, const Devices& devices, const KeptPlan& planned,
                       DeviceTraits traits, v1::RunPlan& plan, const std::stop_token& stop);
  /// Adds what the choice that made the job fit in `room` costs beside its spec as written.
  Status add_cost(const v1::JobSpec& as_written, const CheckedJob& job, const MemoryRoom& room,
                  const Devices& devices, v1::FitChoice& choice, const std::stop_token& stop);
  /// The refusal of a job that needs more than `room` has.
  static Error impossible(const CheckedJob& job, const DatasetSchema& schema, int64_t needed_bytes,
                          const MemoryRoom& room, DeviceTraits traits, const std::stop_token& stop);
  Result<FullPlan> plan_layers(const v1::PlanJobRequest& request, const Devices& devices,
                               const std::stop_token& stop);
  /// Of the CPU's kernels, if it was measured; `key` is empty for a GPU.
  std::optional<int64_t> find_workspace(const std::string& key);
  void keep_workspace(const std::string& key, int64_t bytes);
  /// The rest of PlanJob, once a worker has measured, or failed to.
  Result<v1::JobPlan> finish(FullPlan& full, const Devices& devices, Result<int64_t> workspace,
                             const std::stop_token& stop);
  /// The devices of the cluster that the spec asks for, or else devices().
  Devices devices_for(const v1::JobSpec& spec);
  /// For as long as both of them live.
  StepTimeOn times_of(const v1::JobSpec& spec, const Devices& devices) const;
  /// The devices as they were within the last second: reading them costs more than planning a job.
  Devices devices();
  /// Where the job could have the most memory. Considers running jobs only if `needed_bytes`
  /// requires it.
  Result<MemoryRoom> find_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                               int64_t needed_bytes) const;
  /// If the job does not fit together with the rows that a GPU would hold, they stay on the host.
  Status make_room(const CheckedJob& job, const Devices& devices, DeviceTraits traits,
                   v1::MemoryPlan& memory) const;
  v1::MemoryFit fit_of(const FullPlan& plan, int64_t plan_bytes, const Devices& devices,
                       const std::stop_token& stop) const;

  const PlannerParts parts_;
  Mutex mu_;
  Devices devices_ TRAINYARD_GUARDED_BY(mu_);
  int64_t devices_time_us_ TRAINYARD_GUARDED_BY(mu_) = 0;  // steady; 0: never read
  // By the bytes of their specs. All were accepted when the datasets had changed so often, and for
  // devices_.
  std::unordered_map<std::string, std::shared_ptr<const PlannedJob>> accepted_
      TRAINYARD_GUARDED_BY(mu_);
  int64_t accepted_at_changes_ TRAINYARD_GUARDED_BY(mu_) = 0;
  std::list<KeptPlan> newest_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, decltype(newest_)::iterator> plans_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, int64_t> workspaces_ TRAINYARD_GUARDED_BY(mu_);  // bytes
};

}  // namespace trainyard::server
