// kernels/elementwise.h: sums and constants, element by element.
//
//   add   c[i] = a[i] + b[i]
//   copy  y[i] = x[i], of bytes; nothing is done where y is x
//   fill  y[i] = value
//
/// Shapes    `count` elements; physical order does not matter.
/// Writes    all of c (y), assigned.
/// Aliasing  c may be a or b; y may be x.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/view.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename T>
void add(int64_t count, const T* a, const T* b, T* c);
template <typename T>
void fill(int64_t count, T value, T* y);
void copy(int64_t bytes, const std::byte* x, std::byte* y);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void add(int64_t count, const float* a, const float* b, float* c, Team& team);
void fill(int64_t count, float value, float* y, Team& team);
void copy(int64_t bytes, const std::byte* x, std::byte* y, Team& team);
}  // namespace cpu

/// One launch. Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
void fill(int64_t count, float value, Out y, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
