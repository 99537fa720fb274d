#include "src/job/recipe.h"

#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr double kStepsMax = 0x1p40;

template <typename S>
void add_paths(const S& spec, const std::string& path, FieldTrait trait,
               std::vector<std::string>& out) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    if (row.has(trait)) out.push_back(path + std::string(row.name));
  }
}

}  // namespace

const std::vector<FieldRow<Recipe>>& field_rows(const Recipe&) {
  using S = Recipe;
  static const std::vector<FieldRow<S>> rows = {
      {"epochs", &S::epochs, from_to(1, 1'000'000), kOffAtZero | kForks},
      {"steps", &S::steps, from_to(1, kStepsMax), kOffAtZero | kForks},
      {"batch_size", &S::batch_size},  // at most as many as there are rows
      {"seed", &S::seed, {}, kPlanIgnores},
      {"shuffle", &S::shuffle},
      {"drop_last", &S::drop_last},
      {"validation_split", &S::validation_split, from_to(0, 0.9)},
      {"context_length", &S::context_length, from_to(1, kContextLengthMax), kOffAtZero},
      {"evaluate_every_steps", &S::evaluate_every_steps, from_to(1, kStepsMax),
       kOffAtZero | kForks | kOutsideIdentity},
      {"checkpoint_every_steps", &S::checkpoint_every_steps, from_to(1, kStepsMax),
       kOffAtZero | kOutsideIdentity},
      {"keep_checkpoints", &S::keep_checkpoints, from_to(1, 100), kOutsideIdentity},
      {"keep_checkpoints_every_steps", &S::keep_checkpoints_every_steps, from_to(1, kStepsMax),
       kOffAtZero | kOutsideIdentity},
      {"keep_best_checkpoint", &S::keep_best_checkpoint, {}, kOutsideIdentity},
      {"accumulate_steps", &S::accumulate_steps, from_to(1, 65536)},
      {"clip_gradients.norm", &S::clip_norm, above(0, 1e30), kOffAtZero | kForks | kPlanIgnores},
      {"clip_gradients.value", &S::clip_value, above(0, 1e30), kOffAtZero | kForks | kPlanIgnores},
      {"ema.decay", &S::ema_decay, above_below(0, 1), kOffAtZero | kForksAboveZero | kPlanIgnores},
  };
  return rows;
}

std::vector<std::string> recipe_fields_with(FieldTrait trait) {
  std::vector<std::string> paths;
  add_paths(Recipe(), "recipe.", trait, paths);
  add_paths(OptimizerSpec(), "recipe.optimizer.", trait, paths);
  add_paths(ScheduleSpec(), "recipe.schedule.", trait, paths);
  return paths;
}

}  // namespace trainyard
