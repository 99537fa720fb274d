// proto/convert/spec.h: converts a JobSpec to the engine's types.
#pragma once

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/models/model_spec.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {

/// The precision of a recipe that sets none. The server writes it into each spec that it stores, so
/// that a changed default does not affect stored jobs.
inline constexpr Precision kPrecisionDefault = Precision::kTf32;

/// Priorities range from -kPriorityMax to kPriorityMax.
inline constexpr int kPriorityMax = 100;

/// The parts of a JobSpec that determine the numbers of a run.
struct EngineSpec {
  ModelSpec model;
  Recipe recipe;
};

/// Converts a spec. Refuses what the messages can express but a job cannot use: missing parts,
/// several models, unknown enum numbers, fields without effect (momentum with adam). The error has
/// all problems as violations, up to 16. plan_run(), which knows the dataset, checks ranges.
Result<EngineSpec> to_engine(const v1::JobSpec& spec);

}  // namespace trainyard
