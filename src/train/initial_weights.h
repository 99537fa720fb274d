// src/train/initial_weights.h: weights to begin with, from a safetensors file, by name.
#pragma once

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/train/session.h"

namespace trainyard {

/// Writes what matches (src/planning/weight_match.h) into the session, as F32. Refuses what
/// match_weights() refuses, and values that are not finite.
Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const WeightsFile& source,
                                                  TrainingSession& session);

}  // namespace trainyard
