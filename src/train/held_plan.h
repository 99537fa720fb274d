// src/train/held_plan.h: whether a job's training rows are held in the memory of its device, and
// how much they need there. The same answer for planning and running a job.
#pragma once

#include <cstdint>
#include <optional>

#include "src/data/load/held_rows.h"
#include "src/models/loss.h"

namespace trainyard {

struct Recipe;

/// Larger partitions stay on the host: their batches are brought to the device one by one.
inline constexpr int64_t kHeldBytesMax = int64_t{1} << 30;

/// One allocation beside the job's arena: [rows | table | fills], each aligned as the device asks.
struct HeldPlan {
  HeldForm form;
  int64_t table_at = 0, fills_at = 0;
  int64_t bytes = 0;
};

/// The memory of rows of this form.
HeldPlan plan_rows(const HeldForm& form, int64_t alignment);

/// For a device that holds rows (Backend::holds_rows); the arena's plan does not depend on it.
/// Nothing where the rows take more than kHeldBytesMax or the recipe changes images in ways that
/// are left to the host. `alignment` is what the device asks of its memory.
std::optional<HeldPlan> plan_held(const Recipe& recipe, const DatasetSchema& schema,
                                  int64_t context_length, const Objective& objective,
                                  int64_t alignment);

}  // namespace trainyard
