// kernels/dropout.h: y[i] = keeps(i) ? x[i] / (1 - ratio) : 0. Forward takes x and gives y,
// backward takes dy and gives dx: one function.
//
// Element i draws philox_u32(seed, stream, *step, 4 first_block + i); i counts in physical order. A
// block of four numbers serves elements 4b .. 4b+3. Where x has some columns of a matrix alone, i
// is that of the element in the whole one: of rows of `columns.own` blocks, whose beginnings lie
// `columns.whole` blocks apart.
//
// Source: Srivastava et al., "Dropout" (JMLR 2014), in the form that scales while training.
//
/// Shapes    x, y `count` elements; step one number.
/// Writes    all of y, assigned.
/// Aliasing  y may be x.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/dropout.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// A row of some columns, and of all, in blocks; 0: x is whole.
struct DropoutColumns {
  int64_t own = 0, whole = 0;
  /// Of x's block, the whole one's.
  TRAINYARD_HD int64_t block(int64_t b) const { return b / own * whole + b % own; }
};

struct DropoutParams {
  int64_t count;
  double ratio;  // [0, 1)
  uint64_t seed;
  uint32_t stream;
  int64_t first_block = 0;  // blocks of the rows or columns before these, on other devices
  DropoutColumns columns = {};
};

template <typename X, typename Y>
void check(const DropoutParams& p, const int64_t* step, const X& x, const Y& y) {
  Contract("dropout")
      .size("count", p.count)
      .holds(p.ratio >= 0 && p.ratio < 1, "ratio", "is not in [0, 1)")
      .holds(p.columns.own >= 0 && p.columns.whole >= p.columns.own, "columns",
             "are more than there are")
      .holds(p.columns.own == 0 || p.count % (4 * p.columns.own) == 0, "count",
             "is no number of rows")
      .given("step", step)
      .given("x", x)
      .given("y", y);
}

namespace reference {  // T is float or double
template <typename T>
void dropout(const DropoutParams& p, const int64_t* step, const T* x, T* y, Run<T> run = {});
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
void dropout(const DropoutParams& p, const int64_t* step, const float* x, float* y, Run run);
}  // namespace cpu

/// One launch.
namespace cuda {
void dropout(const DropoutParams& p, const int64_t* step, In x, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
