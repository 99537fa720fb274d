// src/planning/held_plan.h: whether a job's training rows are held in the memory of its device, and
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

/// One allocation beside the job's arena: [rows | table | fills | evaluation's table | evaluation's
/// samples], each aligned as the device asks. The last two only where evaluations read the rows.
struct HeldPlan {
  HeldForm form;
  int64_t table_at = 0, fills_at = 0;
  // Rows of one run of the evaluation program; 0: its batches come from the host.
  int64_t evaluation_rows = 0;
  // The table of images as they are: its own only where training moves them.
  int64_t evaluation_table_at = 0, evaluation_samples_at = 0;
  int64_t bytes = 0;
};

/// The memory of rows of this form.
HeldPlan plan_rows(const HeldForm& form, int64_t alignment);

/// For a device that holds rows (Backend::holds_rows); the arena's plan does not depend on it.
/// Nothing where the rows take more than kHeldBytesMax or the recipe changes images in ways that
/// are left to the host. `validation_batch` is the rows of one run of the evaluation program; 0:
/// there are no validation rows. `alignment` is what the device asks of its memory.
std::optional<HeldPlan> plan_held(const Recipe& recipe, const DatasetSchema& schema,
                                  int64_t context_length, const Objective& objective,
                                  int64_t validation_batch, int64_t alignment);

}  // namespace trainyard
