// kernels/cuda/running_softmax.h: the largest of a thread's elements and the sum of exp(x -
// largest), in one walk over them.
#pragma once

#include "kernels/cuda/block.h"
#include "kernels/math/elementary.h"

namespace trainyard::kernels::cuda {

/// NaN goes through: of max by block.h's Max, of sum by addition.
struct RunningSoftmax {
  float max = Max::kIdentity;
  float sum = 0;
  TRAINYARD_DEVICE void add(float x) {
    if (x > max) {
      sum = sum * math::exp(max - x) + 1;
      max = x;
    } else {
      sum += math::exp(x - max);
    }
  }
  /// The sum of exp(x - larger).
  TRAINYARD_DEVICE float sum_below(float larger) const {
    return sum == 0 ? 0 : sum * math::exp(max - larger);
  }
};

}  // namespace trainyard::kernels::cuda
