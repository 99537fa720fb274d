#include "src/train/initial_weights.h"

#include <algorithm>
#include <cmath>

namespace trainyard {

namespace {

std::vector<float> transposed(const std::vector<float>& theirs, int64_t rows, int64_t columns) {
  std::vector<float> ours(theirs.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      ours[static_cast<size_t>(r * columns + c)] = theirs[static_cast<size_t>(c * rows + r)];
    }
  }
  return ours;
}

}  // namespace

std::vector<float> arranged_values(const TakenWeight& weight, const WeightsFile& file) {
  std::vector<float> values;
  for (const size_t index : weight.source.tensors) {
    const std::vector<float> part = to_f32(file.tensors()[index].dtype, file.bytes(index));
    values.insert(values.end(), part.begin(), part.end());
  }
  if (weight.source.arrangement == Arrangement::kTransposed) {
    return transposed(values, weight.shape[0], weight.shape[1]);
  }
  values.resize(static_cast<size_t>(weight.shape.elements()));  // of kFirstRows, the first
  return values;
}

Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const WeightsFile& source,
                                                  TrainingSession& session) {
  ASSIGN_OR_RETURN(WeightMatch match,
                   match_weights(spec, source.tensors(), session.weight_tensors()));
  for (const TakenWeight& weight : match.taken) {
    const std::vector<float> values = arranged_values(weight, source);
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
      return field_error("INITIAL_WEIGHTS_NOT_FINITE", "recipe.initial_weights",
                         weight.name + " of " + spec.source + " has values that are not finite");
    }
    session.write_weight(weight.name, std::as_bytes(std::span(values)));
  }
  return std::move(match.report);
}

}  // namespace trainyard
