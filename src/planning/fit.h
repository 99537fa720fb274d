// src/planning/fit.h: advice for a job that needs more memory than a device has with every sharding
// plan that may be chosen (sharding_plans.h). Pure functions, like those of job_plan.h.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

/// An optimizer that keeps less state than the job's, with the other changes that it needs to fit.
struct OptimizerAdvice {
  std::string type;                // sgd without momentum
  bool without_clip_norm = false;  // then gradients need not all exist at once
  int64_t accumulate_steps = 0;    // 1: gradients are not summed; 0: unchanged
  int64_t batch_size = 0;          // the largest that fits; 0: unchanged
};

/// Changes each of which alone would make the job fit into the device's memory.
struct FitAdvice {
  // For each field that does not change the result, the smallest change that fits; kNone or 0 if no
  // change of the field does.
  Recompute recompute = Recompute::kNone;
  Shard shard = Shard::kNone;
  int64_t accumulate_steps = 0;
  int64_t batch_size = 0;  // the largest that fits; 0: none does
  // If none of these fits: changes of the optimizer that fit, from the one that keeps most state to
  // the one that keeps least. They need another learning rate.
  std::vector<OptimizerAdvice> optimizers = {};
};
/// `limit_bytes` is the device's memory for the plan, less the kernels' workspace if it is known,
/// and less the dataset if it is resident on the GPU. `one_node`: all devices are in one node, so
/// that layers may be split over them. Makes about ten plans; if the memory that lasts between
/// steps is already too large, only those that shard it or that keep less state. Returns empty
/// advice once `stop` is requested.
FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks = 1, DeviceTraits traits = {},
                     const std::stop_token& stop = {}, bool one_node = true);
/// Returns the advice in words, never empty, such as "recipe.recompute: blocks,
/// recipe.accumulate_steps: 4 or recipe.batch_size: 48 would fit", or "recipe.optimizer.type: lion
/// with recipe.batch_size: 4 or recipe.optimizer.type: sgd would fit".
std::string describe(const FitAdvice& advice);

}  // namespace trainyard
