// proto/convert/plan.h: a job for the planner, and what the planner knows of it for the wire.
#pragma once

#include "proto/convert/spec.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/planner.h"
#include "src/planning/planner_input.h"
#include "src/planning/sharding_choice.h"
#include "src/planning/sharding_plans.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard {

/// Makes the planner's job from a spec; `engine` is the same spec in the engine's types.
JobToPlan to_plan(const v1::JobSpec& spec, EngineSpec engine);

/// The caller adds the spec, the device, the threads and the fit.
v1::JobPlan to_proto(const PlannedRun& planned);
v1::MemoryFit to_proto(const MemoryFit& fit);
v1::FitChoice to_proto(const FitChoice& choice);
v1::ShardingRow to_proto(const ShardingRow& row);

}  // namespace trainyard
