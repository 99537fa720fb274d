// src/planning/recipe_check.h: what can be said about a recipe before a graph exists.
#pragma once

#include <cstdint>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/models/loss.h"
#include "src/plan/device_traits.h"
#include "src/planning/held_plan.h"
#include "src/planning/travel_plan.h"

namespace trainyard {

/// The row and step counts that follow from a recipe and a dataset's size, and what the model
/// trains for.
struct RunShape {
  int64_t train_rows = 0;
  int64_t validation_rows = 0;
  int64_t test_rows = 0;
  int64_t steps_per_epoch = 0;
  int64_t steps_total = 0;
  int64_t micro_batches = 1;     // runs of the training program in one step
  int64_t ranks = 1;             // devices, each with an equal part of every micro-batch
  int64_t rank_batch = 1;        // rows that one device computes at a time
  DeviceTraits traits;           // of what will train
  int64_t context_length = 0;    // of a text's samples, which are the rows above; else 0
  int64_t evaluation_batch = 0;  // rows per run of a rank's evaluation program; 0: none to evaluate
  Objective objective;
  // Training rows on a device that gathers rows: there, or brought as they are stored; else by the
  // host.
  std::optional<HeldPlan> held;
  std::optional<TravelPlan> travel;
};

/// Refuses every field that is out of range or has no effect, all at once (up to 16), by the name
/// that users write: recipe.batch_size. Of the model it looks at what it trains for. `ranks` is
/// what users write as resources.gpus; `traits` is Backend::traits() of what will train.
Result<RunShape> check_recipe(const Recipe& recipe, const ModelSpec& model,
                              const DatasetSchema& schema, int64_t ranks = 1,
                              DeviceTraits traits = {});

}  // namespace trainyard
