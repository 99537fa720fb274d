// proto/convert/spec.h: a JobSpec on the wire as the engine's types.
#pragma once

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/models/model_spec.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {

/// What a recipe without a precision asks for. The server writes it into each spec that it stores,
/// so that another default changes no job.
inline constexpr Precision kPrecisionDefault = Precision::kTf32;

/// Priorities are -kPriorityMax..kPriorityMax.
inline constexpr int kPriorityMax = 100;

/// What of a JobSpec decides the numbers of a run.
struct EngineSpec {
  ModelSpec model;
  Recipe recipe;
};

/// Translates and refuses what the wire format allows but the job cannot use: missing parts,
/// several models at once, enum numbers we do not know, values without effect (momentum with adam).
/// All problems at once, as violations, up to 16. Ranges are checked by plan_run(), which knows the
/// dataset.
Result<EngineSpec> to_engine(const v1::JobSpec& spec);

}  // namespace trainyard
