// kernels/half.h: conversion of numbers from float to 16 bits and back (math/half.h).
//
//   widen   y[i] = x[i], exact        narrow   y[i] = x[i] rounded to nearest, ties to even
//
/// Shapes    `count` elements in any physical order, the same in x and y. Half is math::Bf16 or
///           math::F16.
/// Writes    all of y, assigned.
/// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/math/half.h"

namespace trainyard::kernels {

namespace reference {
template <typename Half>
void widen(int64_t count, const Half* x, float* y);
template <typename Half>
void narrow(int64_t count, const float* x, Half* y);
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
class Team;  // kernels/cpu/team.h
template <typename Half>
void widen(int64_t count, const Half* x, float* y, Team& team);
template <typename Half>
void narrow(int64_t count, const float* x, Half* y, Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
