// kernels/cpu/simd/few_rows.h: products of a few rows with a large matrix; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/math/half.h"

namespace trainyard::kernels::cpu {

/// Operands of y = x w^T (+ b) (+ y).
template <typename Weight>
struct FewRows {
  int64_t rows, columns, F;
  const float* x;   // [rows, F]
  const Weight* w;  // [columns, F]
  const float* b;   // [columns] or nullptr
  bool adds;        // to y, which is assigned otherwise
  float* y;         // [rows, columns], with rows that are y_row apart
  int64_t y_row;
};
/// Each number of y is the sum of its row of x times its row of w in lanes, whose order depends on
/// F and the instruction set alone: neither on the number of rows nor on how w is stored.
template <typename Weight>
using FewRowsLoop = void (*)(const FewRows<Weight>& o);

struct FewRowsLoops {
  FewRowsLoop<float> f32;
  FewRowsLoop<math::Bf16> bf16;
  FewRowsLoop<math::F16> f16;
};
const FewRowsLoops& few_rows_loops();

}  // namespace trainyard::kernels::cpu
