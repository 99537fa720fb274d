#include "src/checkpoint/typed_bytes.h"

#include "src/checkpoint/weights_file.h"

namespace trainyard {

std::span<const std::byte> typed_bytes(const TensorView& t, std::vector<std::byte>& buffer) {
  if (t.storage == Storage::kAsTyped) return t.bytes;
  const std::vector<float> values = to_f32(t.storage == Storage::kF16 ? "F16" : "BF16", t.bytes);
  const std::span<const std::byte> wide = std::as_bytes(std::span(values));
  buffer.assign(wide.begin(), wide.end());
  return buffer;
}

}  // namespace trainyard
