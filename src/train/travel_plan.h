// src/train/travel_plan.h: whether a job's training rows travel to the device that trains it as
// they are stored (travelling_rows.h), and what they take there. Asked by whoever plans a job and
// whoever runs it.
#pragma once

#include <cstdint>
#include <optional>

#include "src/data/held_rows.h"

namespace trainyard {

struct Recipe;

/// One allocation beside the job's arena: [rows | table | fills | samples] of one run of the
/// training program, each aligned as the device asks.
struct TravelPlan {
  HeldForm form;  // rows: of one run
  int64_t table_at = 0, fills_at = 0, samples_at = 0;
  int64_t bytes = 0;
};

/// For a device that gathers rows (Backend::holds_rows) and does not hold these. Nothing where they
/// are not images of 8 bits, or the recipe changes images in ways that are left to the host.
/// `rank_batch` is the rows that a device computes at a time.
std::optional<TravelPlan> plan_travel(const Recipe& recipe, const DatasetSchema& schema,
                                      int64_t rank_batch, int64_t alignment);

}  // namespace trainyard
