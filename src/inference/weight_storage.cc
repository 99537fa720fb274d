#include "src/inference/weight_storage.h"

#include <algorithm>
#include <bit>
#include <span>

#include "kernels/math/half.h"

namespace trainyard {
namespace {

std::span<const float> floats_of(const TensorView& t) {
  return {reinterpret_cast<const float*>(t.bytes.data()), t.bytes.size() / sizeof(float)};
}

template <typename Half>
bool are_all(std::span<const float> values) {
  constexpr size_t kBlock = 4096;  // most matrices of other numbers differ in the first block
  while (!values.empty()) {
    const std::span<const float> block = values.first(std::min(kBlock, values.size()));
    uint32_t lost = 0;
    for (const float value : block) {
      lost |= std::bit_cast<uint32_t>(value) ^
              std::bit_cast<uint32_t>(math::widen(math::narrow<Half>(value)));
    }
    if (lost != 0) return false;
    values = values.subspan(block.size());
  }
  return true;
}

Storage storage_without_loss(const TensorView& t) {
  if (t.storage != Storage::kAsTyped) return t.storage;
  const std::span<const float> values = floats_of(t);
  return are_all<math::Bf16>(values)  ? Storage::kBf16
         : are_all<math::F16>(values) ? Storage::kF16
                                      : Storage::kAsTyped;
}

}  // namespace

WeightStorage find_weight_storage(const LoadedModel& model) {
  WeightStorage found;
  for (const TensorView& t : model.weights.tensors()) {
    if (t.type.dtype != DType::kF32 || t.type.shape.rank() != 2) continue;
    const Storage storage = model.info.precision == Precision::kBf16   ? Storage::kBf16
                            : model.info.precision == Precision::kFp16 ? Storage::kF16
                                                                       : storage_without_loss(t);
    if (storage != Storage::kAsTyped) found[t.name] = storage;
  }
  return found;
}

}  // namespace trainyard
