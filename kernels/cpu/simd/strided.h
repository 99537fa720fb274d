// kernels/cpu/simd/strided.h: loops over the runs of boxes (kernels/box.h); see simd.h.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

struct StridedLoops {
  // y[i * y_stride] = x[i * x_stride]
  void (*copy)(int64_t count, const float* x, int64_t x_stride, float* y, int64_t y_stride);
  // y[c * y_stride + r] = x[r * x_stride + c]
  void (*transpose)(int64_t rows, int64_t columns, const float* x, int64_t x_stride, float* y,
                    int64_t y_stride);
};
const StridedLoops& strided_loops();

}  // namespace trainyard::kernels::cpu
