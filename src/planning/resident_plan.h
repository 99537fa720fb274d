// src/planning/resident_plan.h: decides whether a job's training rows are resident in the memory of
// its device, and plans that memory. Planning and training a job use the same decision.
#pragma once

#include <cstdint>
#include <optional>

#include "src/data/load/resident_rows.h"
#include "src/models/loss.h"

namespace trainyard {

struct Recipe;

/// The largest resident dataset. Larger partitions stay on the host, which copies their batches to
/// the device one by one.
inline constexpr int64_t kResidentBytesMax = int64_t{1} << 30;

/// The plan of one allocation in addition to the job's arena: [rows | table | fills | evaluation's
/// table | evaluation's samples], each aligned as the device requires. The last two exist only if
/// evaluations read the resident rows.
struct ResidentPlan {
  ResidentForm form;
  int64_t table_at = 0, fills_at = 0;
  // Rows per run of the evaluation program; 0 if its batches come from the host.
  int64_t evaluation_rows = 0;
  // The table for unmodified images. It is `table_at` unless training moves its images.
  int64_t evaluation_table_at = 0, evaluation_samples_at = 0;
  int64_t bytes = 0;
};

/// Plans the memory of resident rows of this form, without evaluation.
ResidentPlan plan_rows(const ResidentForm& form, int64_t alignment);

/// Plans the resident dataset for a device that supports it (Backend::supports_resident_rows); the
/// arena's plan does not depend on it. Returns nullopt if the rows take more than kResidentBytesMax
/// or if the recipe has augmentations that only the host can apply. `validation_batch` is the
/// number of rows per run of the evaluation program, 0 without validation rows. `alignment` is in
/// bytes.
std::optional<ResidentPlan> plan_resident(const Recipe& recipe, const DatasetSchema& schema,
                                          int64_t context_length, const Objective& objective,
                                          int64_t validation_batch, int64_t alignment);

}  // namespace trainyard
