// kernels/elementwise.h: copies and constants.
//
//   copy  y[i] = x[i], as bytes; does nothing if y is x
//   fill  y[i] = value
//
/// Shapes    `count` elements in any physical order, the same in all operands.
/// Writes    all of y, assigned.
/// Aliasing  y may be x.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

template <typename Y>
void check_fill(int64_t count, const Y& y) {
  Contract("fill").size("count", count).given("y", y);
}

namespace reference {  // T is float or double
template <typename T>
void fill(int64_t count, T value, T* y, Run<T> run = {});
void copy(int64_t bytes, const std::byte* x, std::byte* y);
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void fill(int64_t count, float value, float* y, Run run);
void copy(int64_t bytes, const std::byte* x, std::byte* y, Team& team);
}  // namespace cpu

/// One launch.
namespace cuda {
void fill(int64_t count, float value, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
