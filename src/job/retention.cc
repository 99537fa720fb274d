#include "src/job/retention.h"

#include <nlohmann/json.hpp>

namespace trainyard {

Retention retention_of(const Recipe& recipe, int64_t best_step) {
  return {.newest = recipe.keep_checkpoints,
          .every_steps = recipe.keep_checkpoints_every_steps,
          .best_step = recipe.keep_best_checkpoint ? best_step : 0};
}

Retention retention_after(const Recipe& recipe, const CheckpointState& state) {
  using Json = nlohmann::json;
  const Json json = Json::parse(state.extra_json, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("best") && json["best"].is_object() &&
      json["best"].contains("step") && json["best"]["step"].is_number_integer()) {
    return retention_of(recipe, json["best"]["step"].get<int64_t>());
  }
  return retention_of(recipe, 0);
}

}  // namespace trainyard
