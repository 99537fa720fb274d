// src/job/retention.h: which of a job's checkpoints are kept.
#pragma once

#include <cstdint>

#include "src/checkpoint/checkpoint.h"
#include "src/job/recipe.h"

namespace trainyard {

/// Returns the retention that the recipe requests. `best_step` is the step of the best evaluation
/// so far, 0 if there is none.
Retention retention_of(const Recipe& recipe, int64_t best_step);
/// Returns the retention after the checkpoint with this state, which contains the step of the best
/// evaluation. Processes other than the one that trained use it.
Retention retention_after(const Recipe& recipe, const CheckpointState& state);

}  // namespace trainyard
