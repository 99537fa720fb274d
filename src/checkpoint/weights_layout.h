// src/checkpoint/weights_layout.h: where the tensors of a safetensors file are, before their bytes
// exist. Tensors may be of any type of the format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"

namespace trainyard {

/// The layout depends on the tensors alone, not on their order in the list. Tensors whose size is a
/// multiple of kMappedAlignment come first, then types with more bytes, then names in their order.
/// The data begins at such a multiple too, so that kernels can read nearly all tensors where they
/// are in the mapped file (src/planning/frozen_storage.h); the format has no room for gaps.
struct WeightsLayout {
  std::string prefix;            // the length of the header and the header
  std::vector<size_t> order;     // indices of the tensors in the order of the file
  std::vector<int64_t> offsets;  // of each tensor's bytes in the file, by its index
  int64_t bytes = 0;             // of the file
};

/// MODEL_FILE_INVALID if the header exceeds its limit.
Result<WeightsLayout> lay_out_weights(const std::vector<FileTensor>& tensors);

/// Returns the bytes of a tensor as the format stores it.
int64_t stored_bytes(const FileTensor& tensor);

}  // namespace trainyard
