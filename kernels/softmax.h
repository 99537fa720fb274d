// kernels/softmax.h: softmax along the middle dimension of [outer, width, inner].
//
//   Softmax:     y = exp(x - m) / sum exp(x - m),   m = max x       dx = y * (dy - sum dy * y)
//   LogSoftmax:  y = x - m - log sum exp(x - m)                     dx = dy - exp(y) * sum dy
//
/// Shapes    x, y, dy, dx [outer, width, inner].
/// Writes    all of y (dx), assigned.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  no overflow while max - min along the dimension fits T.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct SoftmaxDims {
  int64_t outer, width, inner;  // all >= 1
  bool log = false;
};

template <typename X, typename Y>
void check(const SoftmaxDims& d, const X& x, const Y& y) {
  Contract("softmax_forward")
      .size("values", d.outer * d.width * d.inner)
      .given("x", x)
      .given("y", y);
}
template <typename X, typename Y>
void check(const SoftmaxDims& d, const X& y, const X& dy, const Y& dx) {
  Contract("softmax_backward")
      .size("values", d.outer * d.width * d.inner)
      .given("y", y)
      .given("dy", dy)
      .given("dx", dx);
}

namespace reference {  // T is float or double
template <typename T>
void softmax_forward(const SoftmaxDims& d, const T* x, T* y, Run<T> run = {});
template <typename T>
void softmax_backward(const SoftmaxDims& d, const T* y, const T* dy, T* dx, Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void softmax_forward(const SoftmaxDims& d, const float* x, float* y, Run run);
void softmax_backward(const SoftmaxDims& d, const float* y, const float* dy, float* dx, Run run);
}  // namespace cpu

/// One launch. Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
namespace cuda {
void softmax_forward(const SoftmaxDims& d, In x, Out y, Run run);
void softmax_backward(const SoftmaxDims& d, In y, In dy, Out dx, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
