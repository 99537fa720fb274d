// kernels/activation.h: elementwise activations, y = F::f(x) and dx = F::df(saved, dy), for every F
// in kernels/math/activations.h. `saved` is y or x, as F says.
//
/// Shapes    `count` elements; physical order does not matter.
/// Writes    all of y (dx), assigned.
/// Aliasing  y may be x; dx may be dy or saved.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/math/activations.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename F, typename T>
void activation_forward(int64_t count, const T* x, T* y, const F& f = {});
template <typename F, typename T>
void activation_backward(int64_t count, const T* saved, const T* dy, T* dx, const F& f = {});
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
template <typename F>
void activation_forward(int64_t count, const float* x, float* y, Team& team, const F& f = {});
template <typename F>
void activation_backward(int64_t count, const float* saved, const float* dy, float* dx, Team& team,
                         const F& f = {});
}  // namespace cpu

namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
template <typename F>
void activation_forward(int64_t count, In x, Out y, CUstream_st* stream, const F& f = {});
template <typename F>
void activation_backward(int64_t count, In saved, In dy, Out dx, CUstream_st* stream,
                         const F& f = {});
}  // namespace cuda

}  // namespace trainyard::kernels
