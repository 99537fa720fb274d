#include "src/planning/resident_plan.h"

#include "kernels/alignment.h"
#include "src/job/augmentation.h"
#include "src/job/recipe.h"

namespace trainyard {
namespace {

/// Reserves the next `bytes` bytes of the plan's memory and returns their offset.
int64_t take(ResidentPlan& plan, int64_t bytes, int64_t alignment) {
  const int64_t at = plan.bytes;
  plan.bytes += round_up(bytes, alignment);
  return at;
}

/// Returns true if evaluations can read the resident rows. F32 rows of moved images were
/// standardized as augmented images are, which may differ in the last bit from unmodified ones.
/// Byte rows are standardized later, by a table.
bool are_as_evaluated(const ResidentForm& form) { return form.layout.bytes || !form.layout.moved; }

}  // namespace

ResidentPlan plan_rows(const ResidentForm& form, int64_t alignment) {
  ResidentPlan plan{form};
  take(plan, form.data_bytes(), alignment);
  plan.table_at = take(plan, form.table_bytes(), alignment);
  plan.fills_at = take(plan, form.fills_bytes(), alignment);
  return plan;
}

std::optional<ResidentPlan> plan_resident(const Recipe& recipe, const DatasetSchema& schema,
                                          int64_t context_length, const Objective& objective,
                                          int64_t validation_batch, int64_t alignment) {
  if (!moves_images_alone(recipe.augmentation)) return std::nullopt;
  const ResidentForm form = resident_form(
      schema, context_length, objective.interface.category_codes, !recipe.augmentation.empty());
  if (form.data_bytes() > kResidentBytesMax) return std::nullopt;
  ResidentPlan plan = plan_rows(form, alignment);
  if (validation_batch == 0 || !are_as_evaluated(form)) return plan;
  plan.evaluation_rows = validation_batch;
  plan.evaluation_table_at =
      form.layout.moved ? take(plan, form.table_bytes(), alignment) : plan.table_at;
  plan.evaluation_samples_at = take(
      plan, validation_batch * static_cast<int64_t>(sizeof(kernels::ResidentSample)), alignment);
  return plan;
}

}  // namespace trainyard
