// src/train/initial_weights.h: weights to begin with, from another job's model, by name.
#pragma once

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/train/session.h"
#include "src/train/trainer.h"

namespace trainyard {

/// Writes what matches into the session. Refuses a shape that differs, unless the recipe skips
/// those, an include pattern that matches no name of the model, and a source without a match.
Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const SafetensorsFile& source, Session& session);

}  // namespace trainyard
