#include "src/planning/staged_plan.h"

#include "kernels/alignment.h"
#include "src/job/augmentation.h"
#include "src/job/recipe.h"

namespace trainyard {

std::optional<StagedPlan> plan_staged(const Recipe& recipe, const DatasetSchema& schema,
                                      int64_t rank_batch, int64_t alignment) {
  if (!moves_images_alone(recipe.augmentation)) return std::nullopt;
  ResidentForm form = resident_form(schema, /*context_length=*/0, /*category_codes=*/false,
                                    !recipe.augmentation.empty());
  if (!form.layout.bytes) return std::nullopt;
  form.rows = rank_batch;
  StagedPlan plan{plan_rows(form, alignment)};
  plan.samples_at = plan.bytes;
  plan.bytes +=
      round_up(rank_batch * static_cast<int64_t>(sizeof(kernels::ResidentSample)), alignment);
  return plan;
}

}  // namespace trainyard
