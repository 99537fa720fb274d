// src/planning/exchanges.h: the exchanges between the devices of a job, as its programs contain
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/job/run_plan.h"
#include "src/plan/program.h"

namespace trainyard {

struct ExchangingProgram {
  const Program& program;
  int64_t runs = 1;
  bool computes = true;  // false for updates, whose computation is too short to hide exchanges
};

/// Returns the exchanges of these programs on each of `ranks` devices.
std::vector<PlannedExchange> plan_exchanges(const std::vector<ExchangingProgram>& programs,
                                            int64_t ranks);

}  // namespace trainyard
