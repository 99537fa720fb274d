// src/calibration/drawn_values.h: batches of random numbers, for training without a dataset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// Draws `parts` times as many values as the tensor has elements: numbers in [-1, 1), or for an
/// integer tensor, tokens or classes in [0, below). Different streams give different values; a
/// stream always gives the same ones.
std::vector<std::byte> draw_values(const TensorInfo& tensor, int64_t parts, int64_t below,
                                   uint32_t stream);

}  // namespace trainyard
