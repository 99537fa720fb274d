#include "server/planning/run_plans.h"

#include <utility>

#include "server/planning/digest.h"
#include "src/base/check.h"
#include "src/base/sha256.h"
#include "src/planning/job_plan.h"
#include "src/planning/sharding_plans.h"

namespace trainyard::server {

std::string plan_key(const CheckedJob& job, const Recipe& recipe, DeviceTraits traits) {
  v1::Recipe rest = job.spec.recipe();  // without the values that the key contains separately
  rest.clear_batch_size();
  rest.clear_accumulate_steps();
  rest.clear_recompute();
  const ShardingPlan sharding = sharding_of(recipe);
  std::string types;  // frozen parameters are stored as in the file of initial weights
  if (recipe.initial_weights.tensors != nullptr) {
    for (const FileTensor& t : *recipe.initial_weights.tensors) {
      types += t.name + t.dtype + std::to_string(t.offset) + "/";
    }
  }
  return sha256_hex(types) + job.dataset.digest + digest_of(job.spec.model()) + digest_of(rest) +
         std::to_string(recipe.batch_size) + "/" + std::to_string(sharding.accumulate_steps) + "/" +
         std::string(name_of(sharding.recompute)) + "/" + name_of(sharding.shard) + "/" +
         std::to_string(job.job.ranks()) + "/" + std::to_string(job.job.nodes) + "/" +
         std::to_string(traits.alignment) + (traits.processor == Processor::kGpu ? "/gpu" : "/cpu");
}

Result<std::shared_ptr<const RunPlan>> RunPlans::find(const CheckedJob& job, const Recipe& recipe,
                                                      const DatasetSchema& schema,
                                                      DeviceTraits traits,
                                                      const std::stop_token& stop) {
  const std::string key = plan_key(job, recipe, traits);
  {
    const MutexLock lock(mu_);
    if (const auto it = plans_.find(key); it != plans_.end()) {
      newest_.splice(newest_.begin(), newest_, it->second);
      return it->second->plan;
    }
  }
  ASSIGN_OR_RETURN(RunPlan made,
                   plan_run(job.job.model, recipe, schema, job.job.ranks(), traits, stop));
  auto plan = std::make_shared<const RunPlan>(std::move(made));

  const MutexLock lock(mu_);
  if (!plans_.contains(key)) {
    newest_.push_front({key, plan});
    plans_[key] = newest_.begin();
    if (newest_.size() > kKeptMax) {
      plans_.erase(newest_.back().key);
      newest_.pop_back();
    }
    TRAINYARD_CHECK(plans_.size() == newest_.size(),
                    std::to_string(newest_.size()) + " plans are cached, of which " +
                        std::to_string(plans_.size()) + " can be found");
  }
  return plan;
}

}  // namespace trainyard::server
