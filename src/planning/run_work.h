// src/planning/run_work.h: computes the work that makes up a job's time from its programs and
// recipe.
#pragma once

#include "src/data/schema.h"
#include "src/forecast/forecast.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"

namespace trainyard {

/// Returns the work of one rank. `plan` must be the result of describe_run() for the same programs.
RunWork run_work(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe,
                 const DatasetSchema& schema, const RunPlan& plan);

}  // namespace trainyard
