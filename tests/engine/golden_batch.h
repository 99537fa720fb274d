// tests/engine/golden_batch.h: batches of numbers with a class, drawn like golden_batch() and
// image_batch() in tests/golden/reference_models.py.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/math/philox.h"
#include "src/base/philox.h"

namespace trainyard::testing {

struct GoldenBatch {
  std::vector<float> input;  // [rows, values]
  std::vector<int32_t> target;
};

/// Labels are random; about three quarters of a row is the pattern of its class, the rest noise.
inline GoldenBatch golden_batch(uint64_t seed, uint64_t step, int64_t rows, int64_t values,
                                int64_t classes) {
  const auto draw = [seed](const char* stream, uint64_t at, int64_t i) {
    return math::philox_u32(seed, stream_of(stream), at, static_cast<uint64_t>(i));
  };
  GoldenBatch batch;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t label = draw("golden/label", step, n) % classes;
    batch.target.push_back(static_cast<int32_t>(label));
    for (int64_t i = 0; i < values; ++i) {
      const auto noise = math::uniform01<double>(draw("golden/noise", step, n * values + i));
      const auto shape = math::uniform01<double>(draw("golden/pattern", 0, label * values + i));
      batch.input.push_back(static_cast<float>(0.5 * (noise - 0.5) + 1.5 * (shape - 0.5)));
    }
  }
  return batch;
}

}  // namespace trainyard::testing
