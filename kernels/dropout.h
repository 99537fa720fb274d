// kernels/dropout.h: y[i] = keeps(i) ? x[i] / (1 - ratio) : 0. Forward takes x and gives y,
// backward takes dy and gives dx: one function.
//
// Element i draws philox_u32(seed, stream, *step, 4 first_block + i); i counts in physical order. A
// block of four numbers serves elements 4b .. 4b+3.
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

struct DropoutParams {
  int64_t count;
  double ratio;  // [0, 1)
  uint64_t seed;
  uint32_t stream;
  int64_t first_block = 0;  // blocks of the rows before these, on other devices
};

template <typename X, typename Y>
void check(const DropoutParams& p, const int64_t* step, const X& x, const Y& y) {
  Contract("dropout")
      .size("count", p.count)
      .holds(p.ratio >= 0 && p.ratio < 1, "ratio", "is not in [0, 1)")
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
