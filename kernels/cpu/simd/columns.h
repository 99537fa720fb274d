// kernels/cpu/simd/columns.h: patches of channels-last images as rows of a matrix (im2col); see
// simd.h.
//
// Output rows of a batch are numbered g = n * P + p. Row (g, q) of the matrix is the patch under
// output pixel (n, p, q): R * S * C values in the order r, s, c.
#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace trainyard::kernels::cpu {

struct ColumnLoops {
  // columns [rows * Q, R * S * C] = the patches of output rows [first, first + rows); 0 outside the
  // image
  void (*gather)(const ConvDims& d, const float* x, int64_t first, int64_t rows, float* columns);
  // adds columns [rows * Q, R * S * C] of output rows [first, first + rows) to the pixels of dx
  // that each patch covers; values outside the image are dropped
  void (*scatter_add)(const ConvDims& d, const float* columns, int64_t first, int64_t rows,
                      float* dx);
};
const ColumnLoops& column_loops();

}  // namespace trainyard::kernels::cpu
