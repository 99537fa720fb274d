// kernels/reduce.h: sums, means, extremes and norms along axes.
//
//   sum   y = factor * sum x      (a mean has factor 1 / count)
//   l2    y = sqrt(sum x^2)
//   min, max                      NaN beats every number
//
//   gradients: l2         dx = dy * x / y, 0 where y is 0
//              min, max   dx = dy / (the number of x equal to y) where x equals y, else 0
//              sum        none here: it is dy, broadcast, times a constant (kernels/arithmetic.h)
//
/// Shapes    `kept` has one element for each y; its operands are x and y. `reduced` has the
///           elements of x that are reduced to one y; its operand is x, starting at the offset that
///           `kept` gives.
/// Writes    all of y (dx), assigned.
/// Aliasing  none.
/// Numerics  float sums run over fixed blocks, which are added in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

enum class Reduction : uint8_t { kSum, kL2, kMin, kMax };

struct ReduceParams {
  Reduction how = Reduction::kSum;
  Box<2> kept;
  Box<1> reduced;
  double factor = 1;  // only used by kSum
};

template <typename X, typename Y>
void check(const ReduceParams&, const X& x, const Y& y) {
  Contract("reduce").given("x", x).given("y", y);
}
template <typename X, typename Y>
void check(const ReduceParams& p, const X& x, const X& y, const X& dy, const Y& dx) {
  Contract("reduce_grad")
      .holds(p.how != Reduction::kSum, "how", "is a sum, which has no gradient of its own")
      .given("x", x)
      .given("y", y)
      .given("dy", dy)
      .given("dx", dx);
}

namespace reference {  // T is float or double
template <typename T>
void reduce(const ReduceParams& p, const T* x, T* y, Run<T> run = {});
template <typename T>  // not for kSum
void reduce_grad(const ReduceParams& p, const T* x, const T* y, const T* dy, T* dx,
                 Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void reduce(const ReduceParams& p, const float* x, float* y, Run run);
void reduce_grad(const ReduceParams& p, const float* x, const float* y, const float* dy, float* dx,
                 Run run);
}  // namespace cpu

namespace cuda {
int64_t reduce_workspace_bytes(const ReduceParams& p);
void reduce(const ReduceParams& p, In x, Out y, Run run);
int64_t reduce_grad_workspace_bytes(const ReduceParams& p);
void reduce_grad(const ReduceParams& p, In x, In y, In dy, Out dx, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
