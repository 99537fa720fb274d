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

/// What the planner is told of a spec, whose form for the engine is `engine`.
JobToPlan to_plan(const v1::JobSpec& spec, EngineSpec engine);

/// All but what only the caller knows: spec, device, threads, fit.
v1::JobPlan to_proto(const JobPlan& plan);
/// The same with what was chosen and the ways to shard the job.
v1::JobPlan to_proto(const PlannedRun& planned);
v1::MemoryFit to_proto(const MemoryFit& fit);
v1::FitChoice to_proto(const FitChoice& choice);
v1::ShardingRow to_proto(const ShardingRow& row);
/// What would make it fit, without words.
void set_advice(const FitAdvice& advice, v1::MemoryFit& fit);

}  // namespace trainyard
