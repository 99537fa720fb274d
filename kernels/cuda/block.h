// kernels/cuda/block.h: sums and maxima over the threads of a warp or a block, always in the same
// order. All threads must take part; blocks have a multiple of 32 threads.
#pragma once

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {

struct Sum {
  static constexpr float kIdentity = 0.0f;
  template <typename T>
  TRAINYARD_HD T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN beats every number.
struct Max {
  static constexpr float kIdentity = -3.402823466e38f;
  TRAINYARD_HD float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// Reduces over the warp; every thread of the warp gets the result.
template <typename T, typename Op>  // T is float or double
TRAINYARD_DEVICE T warp_reduce(T value, Op op) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  }
  return value;
}

/// Reduces over the block; every thread of the block gets the result.
template <typename T, typename Op>
TRAINYARD_DEVICE T block_reduce(T value, Op op) {
  TRAINYARD_SHARED(T, of_warp, [kWarp]);
  value = warp_reduce(value, op);
  __syncthreads();  // the previous call's values have been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) total = op(total, of_warp[w]);
  return total;
}
template <typename T>
TRAINYARD_DEVICE T block_sum(T value) {
  return block_reduce(value, Sum());
}
TRAINYARD_DEVICE float block_max(float value) { return block_reduce(value, Max()); }

}  // namespace trainyard::kernels::cuda
