#include "src/train/travel_plan.h"

#include "kernels/alignment.h"
#include "src/train/augmentation.h"
#include "src/train/trainer.h"

namespace trainyard {

std::optional<TravelPlan> plan_travel(const Recipe& recipe, const DatasetSchema& schema,
                                      int64_t rank_batch, int64_t alignment) {
  if (!moves_images_alone(recipe.augmentation)) return std::nullopt;
  TravelPlan plan;
  plan.form = held_form(schema, /*context_length=*/0, /*category_codes=*/false,
                        !recipe.augmentation.empty());
  if (!plan.form.layout.bytes) return std::nullopt;
  plan.form.rows = rank_batch;
  const auto take = [&](int64_t bytes) {
    const int64_t at = plan.bytes;
    plan.bytes += round_up(bytes, alignment);
    return at;
  };
  take(plan.form.data_bytes());
  plan.table_at = take(plan.form.table_bytes());
  plan.fills_at = take(plan.form.fills_bytes());
  plan.samples_at = take(rank_batch * static_cast<int64_t>(sizeof(kernels::HeldSample)));
  return plan;
}

}  // namespace trainyard
