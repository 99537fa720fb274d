// proto/convert/plan.h: converts jobs for the planner, and its plans to messages.
#pragma once

#include "proto/convert/spec.h"
#include "src/planning/fit.h"
#include "src/planning/gpu_comparison.h"
#include "src/planning/job_plan.h"
#include "src/planning/planner.h"
#include "src/planning/planner_input.h"
#include "src/planning/sharding_choice.h"
#include "src/planning/sharding_plans.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard {

/// Creates the planner's job from a spec; `engine` is the same spec in the engine's types.
JobToPlan to_plan(const v1::JobSpec& spec, EngineSpec engine);

/// Converts a plan. The caller must set the spec, the device, the threads and the fit.
v1::JobPlan to_proto(const PlannedRun& planned);
v1::MemoryFit to_proto(const MemoryFit& fit);
v1::FitChoice to_proto(const FitChoice& choice);
v1::ShardingRow to_proto(const ShardingRow& row);
v1::GpuComparison to_proto(const ComparedGpu& compared, const CpuForecast& cpu);

}  // namespace trainyard
