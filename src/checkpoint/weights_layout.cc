#include "src/checkpoint/weights_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>

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
  const auto place = [&](size_t i) {
    const bool keeps_alignment = stored_bytes(tensors[i]) % kMappedAlignment == 0;
    const auto element_bytes = static_cast<int64_t>(safetensors_dtype_bytes(tensors[i].dtype));
    return std::tuple(!keeps_alignment, -element_bytes, std::string_view(tensors[i].name));
  };
  std::ranges::sort(layout.order, {}, place);
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
  pad_safetensors_header(json, kMappedAlignment);
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
