// src/planning/run_warnings.h: what is known before a run of how good its model can be.
#pragma once

#include <string>
#include <vector>

#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"

namespace trainyard {

/// The dataset's warnings, and whether the model has too many parameters for its rows. `plan`: all
/// but its warnings.
std::vector<std::string> run_warnings(const RunPlan& plan, const Recipe& recipe,
                                      const DatasetSchema& schema);

}  // namespace trainyard
