// src/train/initial_weights.h: loads initial weights from a safetensors file, matched by name.
#pragma once

#include <functional>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/weight_match.h"
#include "src/train/session.h"

namespace trainyard {

/// Calls take(first, values) with the numbers of one of the model's tensors in the model's order,
/// widened to F32, from element `first` on: in parts, of which only one exists at a time, but a
/// transposed matrix as a whole. Afterwards the file's bytes are no longer in memory. Returns the
/// first error of `take`.
Status for_each_part(
    const TakenWeight& weight, const WeightsFile& file,
    const std::function<Status(int64_t first, const std::vector<float>& values)>& take);

/// Writes the matching tensors (src/planning/weight_match.h) to the session, as F32. Returns the
/// errors of match_weights(), and an error for values that are not finite.
Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const WeightsFile& source,
                                                  TrainingSession& session);

}  // namespace trainyard
