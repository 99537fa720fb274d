#include "src/checkpoint/weights_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_header.h"

namespace trainyard {

int64_t stored_bytes(const FileTensor& tensor) {
  return tensor.shape.elements() * static_cast<int64_t>(safetensors_dtype_bytes(tensor.dtype));
}

Result<WeightsLayout> lay_out_weights(const std::vector<FileTensor>& tensors) {
  WeightsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::ranges::sort(layout.order, [&](size_t a, size_t b) {
    const size_t of_a = safetensors_dtype_bytes(tensors[a].dtype);
    const size_t of_b = safetensors_dtype_bytes(tensors[b].dtype);
    return of_a != of_b ? of_a > of_b : tensors[a].name < tensors[b].name;
  });
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  layout.offsets.resize(tensors.size());
  int64_t end = 0;
  for (const size_t i : layout.order) {
    layout.offsets[i] = end;
    end += stored_bytes(tensors[i]);
    header[tensors[i].name] = {{"dtype", tensors[i].dtype},
                               {"shape", tensors[i].shape.dims()},
                               {"data_offsets", {layout.offsets[i], end}}};
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kSafetensorsHeaderBytesMax) {
    return safetensors_error("header_too_large", "",
                             "the header of all tensors together has " +
                                 std::to_string(json.size()) + " bytes, at most " +
                                 std::to_string(kSafetensorsHeaderBytesMax) + " are accepted");
  }
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    layout.prefix += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  layout.prefix += json;
  for (int64_t& offset : layout.offsets) offset += std::ssize(layout.prefix);
  layout.bytes = std::ssize(layout.prefix) + end;
  return layout;
}

}  // namespace trainyard
