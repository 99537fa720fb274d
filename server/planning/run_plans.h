// server/planning/run_plans.h: a cache of the newest plans of runs.
#pragma once

#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "server/planning/checked_job.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"

namespace trainyard::server {

/// Returns a key that differs if the plans of this job, with this recipe, differ on such a device.
std::string plan_key(const CheckedJob& job, const Recipe& recipe, DeviceTraits traits);

/// Thread-safe. Plans are pure functions of (dataset, model, recipe, GPUs, traits of the device): a
/// sweep of many jobs plans each shape once.
class RunPlans {
 public:
  /// Returns plan_run() of the job with `recipe`, which may differ from the job's own recipe only
  /// in the batch size and in the fields that set how the run uses memory.
  Result<std::shared_ptr<const RunPlan>> find(const CheckedJob& job, const Recipe& recipe,
                                              const DatasetSchema& schema, DeviceTraits traits,
                                              const std::stop_token& stop);

 private:
  static constexpr size_t kKeptMax = 256;
  struct Kept {
    std::string key;
    std::shared_ptr<const RunPlan> plan;
  };

  Mutex mu_;
  std::list<Kept> newest_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, decltype(newest_)::iterator> plans_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
