// src/runtime/cuda/budgets.h: limits of the kernels' workspaces. They are shares of the device's
// memory, so that a small GPU keeps its memory for the job, with a maximum beyond which more
// workspace gains nothing.
//
// The share is taken of the whole memory in GiB, rounded up. It depends neither on the free memory
// nor on the megabytes that a driver reserves, so that a job makes the same choices again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/alignment.h"

namespace trainyard::cuda {

/// The limits of a device with at least as much memory as makes every share reach its maximum: 32
/// GiB for scores, 16 GiB or less for the others.
inline constexpr int64_t kAttentionWorkspaceMost = int64_t{512} << 20;
inline constexpr int64_t kScoresBytesMost = int64_t{512} << 20;
inline constexpr int64_t kConvolutionWorkspaceMost = int64_t{256} << 20;
inline constexpr int64_t kMatmulWorkspaceMost = int64_t{32} << 20;

/// Returns 1/`parts` of the memory in whole GiB, or `most` if that is less.
constexpr int64_t share_of_memory(int64_t memory_bytes, int64_t parts, int64_t most) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  return std::min(round_up(std::max<int64_t>(memory_bytes, 1), kGiB) / parts, most);
}

/// Each function returns bytes for a device with `memory_bytes` of memory.
///
/// ds in the gradient of attention by cuDNN, which takes 2 bytes for each pair of positions of a
/// head. A batch that needs more is computed in parts.
constexpr int64_t attention_workspace_max(int64_t memory_bytes) {
  return share_of_memory(memory_bytes, 32, kAttentionWorkspaceMost);
}
/// The scores of a chunk of a language model's head: at most 4,096 rows of GPT-2's vocabulary in 16
/// bits. Each chunk adds to dw, so larger chunks need fewer passes over dw.
constexpr int64_t scores_bytes_max(int64_t memory_bytes) {
  return share_of_memory(memory_bytes, 64, kScoresBytesMost);
}
/// The workspace that every convolution may have. One with large operands may have more
/// (workspace_max() of convolution_plan.h).
constexpr int64_t convolution_workspace_least(int64_t memory_bytes) {
  return share_of_memory(memory_bytes, 64, kConvolutionWorkspaceMost);
}
/// The workspace of a product.
constexpr int64_t matmul_workspace_max(int64_t memory_bytes) {
  return share_of_memory(memory_bytes, 128, kMatmulWorkspaceMost);
}

}  // namespace trainyard::cuda
