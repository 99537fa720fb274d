// src/planning/staged_plan.h: decides whether a job's training rows are staged, that is sent to its
// device as stored (staged_rows.h), and plans their memory there. Planning and training a job
// use the same decision.
#pragma once

#include <cstdint>
#include <optional>

#include "src/planning/resident_plan.h"

namespace trainyard {

struct Recipe;

/// The memory for the rows of one run of the training program, followed by its samples.
struct StagedPlan : ResidentPlan {
  int64_t samples_at = 0;
};

/// Plans staged rows for a device that can gather rows (Backend::supports_resident_rows) if the
/// dataset is not resident. Returns nullopt if the rows are not images of 8 bits, or if the recipe
/// has augmentations that only the host can apply. `rank_batch` is the number of rows that a device
/// computes at a time, `alignment` is in bytes.
std::optional<StagedPlan> plan_staged(const Recipe& recipe, const DatasetSchema& schema,
                                      int64_t rank_batch, int64_t alignment);

}  // namespace trainyard
