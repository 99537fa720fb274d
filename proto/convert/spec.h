// proto/convert/spec.h: a JobSpec on the wire as the engine's types.
#pragma once

#include "src/base/result.h"
#include "src/models/model_spec.h"
#include "src/train/trainer.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {

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
