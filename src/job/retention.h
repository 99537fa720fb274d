// src/job/retention.h: which of a job's checkpoints stay.
#pragma once

#include <cstdint>

#include "src/checkpoint/checkpoint.h"
#include "src/job/recipe.h"

namespace trainyard {

/// As the recipe asks; `best_step` is that of the best evaluation so far, 0 without one.
Retention retention_of(const Recipe& recipe, int64_t best_step);
/// The same behind a checkpoint, whose state says which evaluation was best: for whoever did not
/// train it.
Retention retention_after(const Recipe& recipe, const CheckpointState& state);

}  // namespace trainyard
