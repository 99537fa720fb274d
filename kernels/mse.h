// kernels/mse.h: mean squared error.
//
//   loss = (1/M) sum_i (y[i] - t[i])^2        dy[i] = dloss (2/M) (y[i] - t[i])
//
/// Shapes    y, t, dy `count` = M elements; loss, dloss [1].
/// Writes    loss (all of dy), assigned.
/// Aliasing  dy may be y.
/// Numerics  the sum runs in double, in order.
#pragma once

#include <cstdint>

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename T>
void mse_forward(int64_t count, const T* y, const T* t, T* loss);
template <typename T>
void mse_backward(int64_t count, const T* y, const T* t, const T* dloss, T* dy);
}  // namespace reference

/// Squares are added in double in fixed blocks, so the thread count changes no bit.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t mse_workspace_bytes(int64_t count);
void mse_forward(int64_t count, const float* y, const float* t, float* loss, void* workspace,
                 Team& team);
void mse_backward(int64_t count, const float* y, const float* t, const float* dloss, float* dy,
                  Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
