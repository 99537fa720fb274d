#include "src/calibration/drawn_values.h"

#include <cstring>

#include "kernels/math/philox.h"

namespace trainyard {

constexpr uint64_t kValuesSeed = 1;

std::vector<std::byte> draw_values(const TensorInfo& tensor, int64_t parts, int64_t below,
                                   uint32_t stream) {
  const int64_t count = tensor.type.shape.elements() * parts;
  const size_t size = size_of(tensor.type.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t u = math::philox_u32(kValuesSeed, stream, 0, static_cast<uint64_t>(i));
    std::byte* const to = bytes.data() + static_cast<size_t>(i) * size;
    if (tensor.type.dtype == DType::kI32) {
      const auto value = static_cast<int32_t>(u % static_cast<uint32_t>(below));
      std::memcpy(to, &value, sizeof value);
    } else {
      const float value = 2 * math::uniform01<float>(u) - 1;
      std::memcpy(to, &value, sizeof value);
    }
  }
  return bytes;
}

}  // namespace trainyard
