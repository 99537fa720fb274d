// server/planning/compare_planners.h: for this commit alone. Ends the process where the planner
// that is used now and the former one answer differently.
#pragma once

#include "server/planning/former_planner.h"

namespace trainyard::server {

bool are_same(const Result<PlannedJob>& now, const Result<PlannedJob>& before);
void compare_planned(const v1::JobSpec& spec, Result<PlannedJob> now, Result<PlannedJob> before);
void compare_plans(const v1::PlanJobRequest& request, Result<v1::JobPlan> now,
                   Result<v1::JobPlan> before);
}  // namespace trainyard::server
