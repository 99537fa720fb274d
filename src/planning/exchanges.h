// src/planning/exchanges.h: the exchanges between the devices of a job, as its programs contain them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/job/run_plan.h"
#include "src/planning/programs.h"

namespace trainyard {

/// Returns the exchanges of a step.
std::vector<PlannedExchange> plan_exchanges(const RunPrograms& programs, const RunShape& shape);
/// Returns the exchanges of one run of a program.
std::vector<PlannedExchange> plan_exchanges(const Program& program, int64_t ranks);

}  // namespace trainyard
