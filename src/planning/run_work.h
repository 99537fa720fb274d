// src/planning/run_work.h: what a job's time is made of, read off its programs and its recipe.
#pragma once

#include "src/data/schema.h"
#include "src/forecast/forecast.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"

namespace trainyard {

/// `plan` is describe_run()'s of the same programs. Of several ranks, the work of one.
RunWork run_work(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe,
                 const DatasetSchema& schema, const RunPlan& plan);

}  // namespace trainyard
