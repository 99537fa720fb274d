// src/runtime/cuda/head_loss.h: computes a head and its loss in chunks of rows
// (src/ops/head_loss.h).
#pragma once

#include <cstdint>
#include <memory>

#include "src/runtime/common/kernel_table.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Returns the kernel of a GemmSoftmaxCrossEntropyLoss. A chunk has at most `scores_bytes_max` of
/// scores, but at least 128 rows. The chunk size does not change a bit of loss and dx; dw and db
/// are summed chunk by chunk.
std::unique_ptr<Kernel> make_head_loss(const Device& device, const Graph& graph, const Node& node,
                                       int64_t scores_bytes_max);

}  // namespace trainyard::cuda
