// kernels/cuda/launch.h: how elementwise kernels are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace trainyard::kernels::cuda {

constexpr int kBlockThreads = 256;
/// A grid-stride loop covers the rest: enough blocks to fill the largest GPU several times over,
/// and within the grid's limit for any element count.
constexpr int64_t kBlocksMax = 65535;

/// Blocks for n >= 1 elements.
inline unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::min((n + kBlockThreads - 1) / kBlockThreads, kBlocksMax));
}

}  // namespace trainyard::kernels::cuda
