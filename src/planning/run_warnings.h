// src/planning/run_warnings.h: warnings, known before a run, about how good its model can become.
#pragma once

#include <string>
#include <vector>

#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"

namespace trainyard {

/// Returns the dataset's warnings, and a warning if the model has too many parameters for the
/// dataset's rows. `plan.warnings` is not used.
std::vector<std::string> run_warnings(const RunPlan& plan, const Recipe& recipe,
                                      const DatasetSchema& schema);

}  // namespace trainyard
