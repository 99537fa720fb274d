#include "src/train/held_plan.h"

#include "kernels/alignment.h"
#include "src/train/augmentation.h"
#include "src/train/trainer.h"

namespace trainyard {

HeldPlan plan_rows(const HeldForm& form, int64_t alignment) {
  HeldPlan plan{form};
  const auto take = [&](int64_t bytes) {
    const int64_t at = plan.bytes;
    plan.bytes += round_up(bytes, alignment);
    return at;
  };
  take(form.data_bytes());
  plan.table_at = take(form.table_bytes());
  plan.fills_at = take(form.fills_bytes());
  return plan;
}

std::optional<HeldPlan> plan_held(const Recipe& recipe, const DatasetSchema& schema,
                                  int64_t context_length, const Objective& objective,
                                  int64_t alignment) {
  if (!moves_images_alone(recipe.augmentation)) return std::nullopt;
  const HeldForm form = held_form(schema, context_length, objective.interface.category_codes,
                                  !recipe.augmentation.empty());
  if (form.data_bytes() > kHeldBytesMax) return std::nullopt;
  return plan_rows(form, alignment);
}

}  // namespace trainyard
