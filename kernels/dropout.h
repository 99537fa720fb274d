// kernels/dropout.h: y[i] = keeps(i) ? x[i] / (1 - ratio) : 0. The same function serves forward (x
// to y) and backward (dy to dx).
//
// Element i uses the random number philox_u32(seed, stream, *step, 4 first_block + i), where i
// counts in physical order. A block of four random numbers serves elements 4b .. 4b+3. If x
// contains only some columns of a matrix, i is the element's index in the whole matrix: each row of
// x has `columns.own` blocks, and rows of the matrix start `columns.whole` blocks apart.
//
// Source: Srivastava et al., "Dropout" (JMLR 2014), in the form that scales while training.
//
/// Shapes    x, y `count` elements; step [1].
/// Writes    all of y, assigned.
/// Aliasing  y may be x.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/dropout.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// Blocks in a row of x, and in a row of the whole matrix. Both are 0 if x is the whole matrix.
struct DropoutColumns {
  int64_t own = 0, whole = 0;
  /// Returns the block of the whole matrix that is block `b` of x.
  TRAINYARD_HD int64_t block(int64_t b) const { return b / own * whole + b % own; }
};

struct DropoutParams {
  int64_t count;
  double ratio;  // [0, 1)
  uint64_t seed;
  uint32_t stream;
  int64_t first_block = 0;  // number of blocks before x, which are on other devices
  DropoutColumns columns = {};
};

template <typename X, typename Y>
void check(const DropoutParams& p, const int64_t* step, const X& x, const Y& y) {
  Contract("dropout")
      .size("count", p.count)
      .holds(p.ratio >= 0 && p.ratio < 1, "ratio", "is not in [0, 1)")
      .holds(p.columns.own >= 0 && p.columns.whole >= p.columns.own, "columns",
             "exceed the whole row")
      .holds(p.columns.own == 0 || p.count % (4 * p.columns.own) == 0, "count",
             "is not a multiple of a row")
      .given("step", step)
      .given("x", x)
      .given("y", y);
}

namespace reference {  // T is float or double
template <typename T>
void dropout(const DropoutParams& p, const int64_t* step, const T* x, T* y, Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void dropout(const DropoutParams& p, const int64_t* step, const float* x, float* y, Run run);
}  // namespace cpu

/// One launch.
namespace cuda {
void dropout(const DropoutParams& p, const int64_t* step, In x, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
