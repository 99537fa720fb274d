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
#include "src/planning/weight_sources.h"

namespace trainyard {

struct TakenWeight {
  std::string name;  // of the model's tensor
  Shape shape;
  WeightSource source;
};

struct WeightMatch {
  InitialWeightsReport report;
  std::vector<TakenWeight> taken;
};

/// Returns the 16-bit type of all of the file's tensors from which a weight begins; kAsTyped if
/// there is no such type.
Storage storage_in_file(const TakenWeight& weight, std::span<const FileTensor> file);

/// Matches `source` to `model`, the parameters and state of the network. Refuses a different shape
/// or type unless the recipe skips such tensors, a pattern or prefix that matches nothing, two
/// tensors that would get the same name, a source without any match, and, unless the recipe asks
/// for partial weights, a source most of whose tensors the model would not use, or with which most
/// of the model's numbers would be drawn at random.
Result<WeightMatch> match_weights(const InitialWeights& spec, std::span<const FileTensor> source,
                                  std::span<const TensorInfo> model);

/// Returns the report that a job with this recipe would give.
Result<InitialWeightsReport> plan_initial_weights(const ModelSpec& model, const Recipe& recipe,
                                                  const DatasetSchema& schema,
                                                  std::span<const FileTensor> source);

/// Returns a warning if published weights of the file's library expect pixels in another scale than
/// the recipe gives; empty if there is nothing to say.
std::string pixel_warning(const InitialWeightsReport& report, const Recipe& recipe,
                          const DatasetSchema& schema);

}  // namespace trainyard
