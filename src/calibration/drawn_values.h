// src/calibration/drawn_values.h: batches of random numbers, for networks that train on no dataset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// `parts` times as many values as the tensor has: numbers in [-1, 1), or where it is of integers,
/// tokens or classes in [0, below). Other ones for each `stream`, always the same for one.
std::vector<std::byte> draw_values(const TensorInfo& tensor, int64_t parts, int64_t below,
                                   uint32_t stream);

}  // namespace trainyard
