// kernels/cpu/simd/elementwise.h: loops over spans and small matrices; see simd.h.
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
  // sum[c] = sum over rows, in their order, of x[r * stride + c]
  void (*column_sums)(int64_t rows, int64_t stride, int64_t columns, const float* x, float* sum);
  // y [columns, rows] = x [rows, columns] transposed
  void (*transpose)(int64_t rows, int64_t columns, const float* x, float* y);
  // Elements of the Philox blocks [begin, end), of four elements each
  void (*dropout)(const DropoutParams& p, uint64_t step, int64_t begin, int64_t end, const float* x,
                  float* y);
};
const ElementwiseLoops& elementwise_loops();

}  // namespace trainyard::kernels::cpu
