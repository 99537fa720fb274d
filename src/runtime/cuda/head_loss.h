// src/runtime/cuda/head_loss.h: a head and its loss by chunks of rows (src/ops/head_loss.h).
#pragma once

#include <cstdint>
#include <memory>

#include "src/runtime/common/kernel_table.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Of scores at a time: 2,048 rows of GPT-2's vocabulary in 16 bits. More of them would save sweeps
/// over dw, which each chunk adds to.
constexpr int64_t kScoresBytesMax = int64_t{256} << 20;

/// The kernel of a GemmSoftmaxCrossEntropyLoss that holds at most `scores_bytes_max` of its scores
/// at a time, but 128 rows at least. How many they are changes no bit of loss and dx; dw and db are
/// added up chunk by chunk.
std::unique_ptr<Kernel> make_head_loss(const Device& device, const Graph& graph, const Node& node,
                                       int64_t scores_bytes_max);

}  // namespace trainyard::cuda
