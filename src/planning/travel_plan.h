// src/planning/travel_plan.h: whether a job's training rows are sent to its device as stored
// (travelling_rows.h), and how much memory they need there. The same answer for planning and
// running a job.
#pragma once

#include <cstdint>
#include <optional>

#include "src/planning/held_plan.h"

namespace trainyard {

struct Recipe;

/// The rows of one run of the training program, and behind them its samples.
struct TravelPlan : HeldPlan {
  int64_t samples_at = 0;
};

/// For a device that gathers rows (Backend::holds_rows) and does not hold these. Nothing where they
/// are not images of 8 bits, or the recipe changes images in ways that are left to the host.
/// `rank_batch` is the rows that a device computes at a time.
std::optional<TravelPlan> plan_travel(const Recipe& recipe, const DatasetSchema& schema,
                                      int64_t rank_batch, int64_t alignment);

}  // namespace trainyard
