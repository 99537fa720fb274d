// src/planning/weight_match.h: matches the tensors of a weights file to a model by name. Pure: the
// daemon calls it at submit with a table of names and shapes, the worker with the file's tensors.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/data/schema.h"
#include "src/graph/graph.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"

namespace trainyard {

struct WeightMatch {
  InitialWeightsReport report;
  // Name of the model's tensor, index of the source's tensor.
  std::vector<std::pair<std::string, size_t>> taken;
};

/// Matches `source` to `model`, the parameters and state of the network. Refuses a different shape
/// or type unless the recipe skips such tensors, a pattern or prefix that matches nothing, two
/// tensors that would get the same name, and a source without any match.
Result<WeightMatch> match_weights(const InitialWeights& spec, std::span<const FileTensor> source,
                                  std::span<const TensorInfo> model);

/// Returns the report that a job with this recipe would give.
Result<InitialWeightsReport> plan_initial_weights(const ModelSpec& model, const Recipe& recipe,
                                                  const DatasetSchema& schema,
                                                  std::span<const FileTensor> source);

}  // namespace trainyard
