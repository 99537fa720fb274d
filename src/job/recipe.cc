#include "src/job/recipe.h"

namespace trainyard {
namespace {

template <typename S>
void add_paths(const S& spec, const std::string& path, FieldTrait trait,
               std::vector<std::string>& out) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    if (row.has(trait)) out.push_back(path + std::string(row.name));
  }
}

}  // namespace

std::vector<std::string> recipe_fields_with(FieldTrait trait) {
  std::vector<std::string> paths;
  add_paths(Recipe(), "recipe.", trait, paths);
  add_paths(OptimizerSpec(), "recipe.optimizer.", trait, paths);
  add_paths(ScheduleSpec(), "recipe.schedule.", trait, paths);
  return paths;
}

}  // namespace trainyard
