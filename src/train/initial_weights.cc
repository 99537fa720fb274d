#include "src/train/initial_weights.h"

#include <algorithm>
#include <cmath>

#include "src/planning/weight_match.h"

namespace trainyard {

Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const WeightsFile& source,
                                                  TrainingSession& session) {
  ASSIGN_OR_RETURN(WeightMatch match,
                   match_weights(spec, source.tensors(), session.weight_tensors()));
  for (const auto& [name, index] : match.taken) {
    const std::vector<float> values = to_f32(source.tensors()[index].dtype, source.bytes(index));
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
      return field_error("INITIAL_WEIGHTS_NOT_FINITE", "recipe.initial_weights",
                         name + " of " + spec.source + " has values that are not finite");
    }
    session.write_weight(name, std::as_bytes(std::span(values)));
  }
  return std::move(match.report);
}

}  // namespace trainyard
