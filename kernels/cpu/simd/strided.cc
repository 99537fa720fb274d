// Loops over the runs of boxes (kernels/box.h).
#include "kernels/cpu/simd/strided.h"

#include <cstring>

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

void copy(int64_t count, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  if (y_stride == 1 && x_stride == 1) {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
  } else if (y_stride == 1 && x_stride == 0) {
    const float value = *x;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < count; ++i) y[i * y_stride] = x[i * x_stride];
  }
}

// Works in tiles, so that the written cache lines stay cached until adjacent elements are written.
void transpose(int64_t rows, int64_t columns, const float* x, int64_t x_stride, float* y,
               int64_t y_stride) {
  constexpr int64_t kTile = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t r1 = r0 + kTile < rows ? r0 + kTile : rows;
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r) y[c * y_stride + r] = x[r * x_stride + c];
    }
  }
}

}  // namespace

const StridedLoops& TRAINYARD_VARIANT(strided_loops)();
const StridedLoops& TRAINYARD_VARIANT(strided_loops)() {
  static constexpr StridedLoops kLoops = {copy, transpose};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
