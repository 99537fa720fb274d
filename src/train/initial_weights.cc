#include "src/train/initial_weights.h"

#include <algorithm>
#include <cmath>

namespace trainyard {

namespace {

constexpr int64_t kPartElements = int64_t{1} << 20;

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

Status for_each_part(
    const TakenWeight& weight, const WeightsFile& file,
    const std::function<Status(int64_t first, const std::vector<float>& values)>& take) {
  if (weight.source.arrangement == Arrangement::kTransposed) {
    const size_t index = weight.source.tensors.front();
    const std::vector<float> theirs = to_f32(file.tensors()[index].dtype, file.bytes(index));
    file.drop_pages(index);
    return take(0, transposed(theirs, weight.shape[0], weight.shape[1]));
  }
  int64_t first = 0;
  for (const size_t index : weight.source.tensors) {
    const FileTensor& tensor = file.tensors()[index];
    // A kFirstRows load takes only the elements that the parameter has.
    const int64_t end = std::min(first + tensor.shape.elements(), weight.shape.elements());
    for (int64_t at = 0; first < end; first += kPartElements, at += kPartElements) {
      const int64_t size = std::ssize(file.bytes(index)) / tensor.shape.elements();
      const int64_t count = std::min(kPartElements, end - first);
      const auto bytes = file.bytes(index).subspan(static_cast<size_t>(at * size),
                                                   static_cast<size_t>(count * size));
      if (Status s = take(first, to_f32(tensor.dtype, bytes)); !s.ok()) return s;
    }
    first = end;
    file.drop_pages(index);
  }
  return {};
}

Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const WeightsFile& source,
                                                  TrainingSession& session) {
  ASSIGN_OR_RETURN(WeightMatch match,
                   match_weights(spec, source.tensors(), session.weight_tensors()));
  for (const TakenWeight& weight : match.taken) {
    const auto write = [&](int64_t first, const std::vector<float>& values) -> Status {
      if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
        return field_error("INITIAL_WEIGHTS_NOT_FINITE", "recipe.initial_weights",
                           weight.name + " of " + spec.source + " has values that are not finite");
      }
      session.write_weight_part(weight.name, first, std::as_bytes(std::span(values)));
      return {};
    };
    if (Status s = for_each_part(weight, source, write); !s.ok()) return std::move(s).error();
  }
  return std::move(match.report);
}

}  // namespace trainyard
