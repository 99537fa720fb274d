// src/train/fit.h: a job that needs more memory than a device has: what would make it fit, and what
// makes it fit without changing its result. Pure, as job_plan.h.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "src/data/schema.h"
#include "src/train/trainer.h"

namespace trainyard {

/// Changes that would make a job fit that needs more than a device has; each by itself, the rest
/// unchanged.
struct FitAdvice {
  // The least that fits of what gives the same result; kNone and 0 where nothing does.
  Recompute recompute = Recompute::kNone;
  Shard shard = Shard::kNone;
  int64_t accumulate_steps = 0;
  int64_t batch_size = 0;  // the largest that fits; 0: none does
};
/// `limit_bytes` is what the device has for the plan: without the kernels' workspace, if it is
/// known, and the dataset on a GPU that holds it. `head`: as FitFreedom. Plans some ten times, and
/// none of them where what lasts between steps is too large already. Nothing once `stop` is
/// requested.
FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks = 1, DeviceTraits traits = {},
                     const std::stop_token& stop = {}, bool head = true);
/// "recipe.recompute: blocks, recipe.accumulate_steps: 4 or recipe.batch_size: 48 would fit": the
/// advice in words; never empty.
std::string describe(const FitAdvice& advice);

/// What a recipe leaves open, which the plan may choose so that the job fits.
struct FitFreedom {
  bool recompute = false;
  bool accumulate_steps = false;  // where find_fit sees that only roundings change
  bool shard = false;             // of several devices, where there is something to shard
  bool head = true;               // `shard` may be of the head: the devices are of one node
};
/// A recipe that fits: as it was but for these.
struct Fit {
  Recompute recompute = Recompute::kNone;
  int64_t accumulate_steps = 1;
  Shard shard = Shard::kNone;
  RunPlan plan;
};
/// The first that fits, in the order of what it changes: recompute, to the same bits; the fewest
/// micro-batches, to the same result but for roundings; both; and then the same with what can be
/// sharded, which the devices' link decides the price of: the optimizer's state, the head, both,
/// and all parameters, with the head as they or split. Micro-batches are chosen only where the mean
/// of their gradients is the whole batch's: not with batch normalization, class weights or an
/// ignored label. Nothing if `recipe` as it is needs no more than `limit_bytes`, if nothing fits,
/// and once `stop` is requested. `limit_bytes` as for advise_fit.
std::optional<Fit> find_fit(const ModelSpec& model, const Recipe& recipe,
                            const DatasetSchema& schema, int64_t limit_bytes, FitFreedom free,
                            int64_t ranks = 1, DeviceTraits traits = {},
                            const std::stop_token& stop = {});

}  // namespace trainyard
