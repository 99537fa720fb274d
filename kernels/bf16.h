// kernels/bf16.h: numbers from float to bfloat16 and back (math/bf16.h).
//
//   widen   y[i] = x[i], exact        narrow   y[i] = x[i] rounded to nearest, ties to even
//
/// Shapes    `count` elements; physical order does not matter.
/// Writes    all of y, assigned.
/// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/math/bf16.h"

namespace trainyard::kernels {

namespace reference {
void widen(int64_t count, const math::Bf16* x, float* y);
void narrow(int64_t count, const float* x, math::Bf16* y);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void widen(int64_t count, const math::Bf16* x, float* y, Team& team);
void narrow(int64_t count, const float* x, math::Bf16* y, Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
