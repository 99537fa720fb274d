// kernels/pointwise_loss.h: the mean of a loss of single numbers, for every F in
// kernels/math/losses.h.
//
//   loss = (1/M) sum_i F::f(y[i], t[i])        dy[i] = (dloss/M) F::df(y[i], t[i])
//
/// Shapes    y, t, dy `count` = M elements; loss, dloss [1]. Targets may be classes 0 and 1.
/// Writes    loss (all of dy), assigned.
/// Aliasing  dy may be y.
/// Numerics  the sum runs in double, in order.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"  // CUstream_st
#include "kernels/math/losses.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double, Target is T or int32_t
template <typename F, typename T, typename Target>
void pointwise_loss(const F& f, int64_t count, const T* y, const Target* t, T* loss);
template <typename F, typename T, typename Target>
void pointwise_loss_grad(const F& f, int64_t count, const T* y, const Target* t, const T* dloss,
                         T* dy);
}  // namespace reference

/// Losses are added in double in fixed blocks, so the thread count changes no bit.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t pointwise_loss_workspace_bytes(int64_t count);
template <typename F, typename Target>  // Target is float or int32_t
void pointwise_loss(const F& f, int64_t count, const float* y, const Target* t, float* loss,
                    void* workspace, Team& team);
template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count, const float* y, const Target* t,
                         const float* dloss, float* dy, Team& team);
}  // namespace cpu

/// A thread's losses are summed in F32, the blocks' sums in double, in an order that is always the
/// same. Launches: loss 2, gradient 1. Asynchronous on `stream`; a launch that failed is told by
/// cudaPeekAtLastError().
namespace cuda {
int64_t pointwise_loss_workspace_bytes(int64_t count);
template <typename F, typename Target>  // Target is float or int32_t
void pointwise_loss(const F& f, int64_t count, const float* y, const Target* t, float* loss,
                    void* workspace, CUstream_st* stream);
template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count, const float* y, const Target* t,
                         const float* dloss, float* dy, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
