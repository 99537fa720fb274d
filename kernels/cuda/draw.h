// kernels/cuda/draw.h: dropout (kernels/dropout.h) as a device object for use in kernels.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/dropout.h"

namespace trainyard::kernels::cuda {

struct Draw {
  uint64_t seed = 0;
  uint32_t stream = 0, threshold = 0;
  float scale = 1;
  int64_t first_block = 0;
  const int64_t* step = nullptr;  // in device memory

  Draw() = default;
  Draw(const DropoutParams& p, const int64_t* at)
      : seed(p.seed),
        stream(p.stream),
        threshold(math::dropout_threshold(p.ratio)),
        scale(static_cast<float>(1 / (1 - p.ratio))),
        first_block(p.first_block),
        step(at) {}
  /// Returns the random numbers of elements i to i + 3; i is a multiple of 4.
  TRAINYARD_DEVICE math::Philox4 numbers(int64_t i) const { return block(i / 4); }
  TRAINYARD_DEVICE math::Philox4 block(int64_t b) const {
    return math::philox_block(seed, stream, static_cast<uint64_t>(*step),
                              static_cast<uint64_t>(first_block + b));
  }
  TRAINYARD_DEVICE float kept(uint32_t number, float value) const {
    return math::dropout_keeps(number, threshold) ? value * scale : 0.0f;
  }
};

}  // namespace trainyard::kernels::cuda
