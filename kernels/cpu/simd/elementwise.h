// kernels/cpu/simd/elementwise.h: loops over contiguous arrays and small matrices; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"
#include "kernels/math/half.h"

namespace trainyard::kernels::cpu {

template <typename Half>
struct HalfLoops {
  void (*widen)(int64_t count, const Half* x, float* y);
  void (*narrow)(int64_t count, const float* x, Half* y);
};

struct ElementwiseLoops {
  void (*add)(int64_t count, const float* a, const float* b, float* c);
  HalfLoops<math::Bf16> bf16;
  HalfLoops<math::F16> f16;
  void (*fill)(int64_t count, float value, float* y);
  // sum[c] = sum over rows, in order, of x[r * stride + c]
  void (*column_sums)(int64_t rows, int64_t stride, int64_t columns, const float* x, float* sum);
  // y [columns, rows] = x [rows, columns] transposed
  void (*transpose)(int64_t rows, int64_t columns, const float* x, float* y);
  // Processes the elements of Philox blocks [begin, end), four elements per block.
  void (*dropout)(const DropoutParams& p, uint64_t step, int64_t begin, int64_t end, const float* x,
                  float* y);
};
const ElementwiseLoops& elementwise_loops();

}  // namespace trainyard::kernels::cpu
