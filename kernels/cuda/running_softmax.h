// kernels/cuda/running_softmax.h: computes the maximum of a thread's elements and the sum of exp(x
// - maximum), in one pass over the elements.
#pragma once

#include "kernels/cuda/block.h"
#include "kernels/math/elementary.h"

namespace trainyard::kernels::cuda {

/// NaN is propagated: by the addition into `sum`, and into the maximum by block.h's Max.
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
  /// The thread's sum relative to a larger maximum: the sum of exp(x - larger).
  TRAINYARD_DEVICE float sum_below(float larger) const {
    return sum == 0 ? 0 : sum * math::exp(max - larger);
  }
};

}  // namespace trainyard::kernels::cuda
