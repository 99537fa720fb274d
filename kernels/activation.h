// kernels/activation.h: elementwise activations, y = F::f(x) and dx = F::df(saved, dy), for every F
// in kernels/math/activations.h. `saved` is y or x, depending on F.
//
/// Shapes    `count` elements in any physical order, the same in all operands.
/// Writes    all of y (dx), assigned.
/// Aliasing  y may be x; dx may be dy or saved.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/activations.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

template <typename X, typename Y>
void check_activation(int64_t count, const X& x, const Y& y) {
  Contract("activation_forward").size("count", count).given("x", x).given("y", y);
}
template <typename X, typename Y>
void check_activation(int64_t count, const X& saved, const X& dy, const Y& dx) {
  Contract("activation_backward")
      .size("count", count)
      .given("saved", saved)
      .given("dy", dy)
      .given("dx", dx);
}

namespace reference {  // T is float or double
template <typename F, typename T>
void activation_forward(int64_t count, const T* x, T* y, Run<T> run, const F& f = {});
template <typename F, typename T>
void activation_backward(int64_t count, const T* saved, const T* dy, T* dx, Run<T> run,
                         const F& f = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
template <typename F>
void activation_forward(int64_t count, const float* x, float* y, Run run, const F& f = {});
template <typename F>
void activation_backward(int64_t count, const float* saved, const float* dy, float* dx, Run run,
                         const F& f = {});
}  // namespace cpu

namespace cuda {
template <typename F>
void activation_forward(int64_t count, In x, Out y, Run run, const F& f = {});
template <typename F>
void activation_backward(int64_t count, In saved, In dy, Out dx, Run run, const F& f = {});
}  // namespace cuda

}  // namespace trainyard::kernels
