#include "server/planning/open_batch.h"

namespace trainyard::server {

bool batch_size_is_open(const v1::JobSpec& spec) {
  return spec.recipe().has_batch_size() && spec.recipe().batch_size() == 0;
}

int64_t batch_unit(const v1::JobSpec& spec) {
  constexpr int64_t kFactorMax = 65536;
  // Values outside this range are refused by other checks.
  const auto factor = [](int64_t value) { return value >= 1 && value <= kFactorMax ? value : 1; };
  return factor(spec.recipe().accumulate_steps()) * factor(spec.resources().gpus()) *
         factor(spec.resources().nodes());
}

void keep_batch_size(const v1::JobSpec& parent, v1::JobSpec& fork) {
  if (!batch_size_is_open(fork)) return;
  v1::Recipe& recipe = *fork.mutable_recipe();
  recipe.clear_batch_size();  // the parent's default is also the fork's
  if (parent.recipe().has_batch_size()) recipe.set_batch_size(parent.recipe().batch_size());
}

}  // namespace trainyard::server
