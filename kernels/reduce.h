// kernels/reduce.h: sums, means, extremes and norms along axes.
//
//   sum   y = factor * sum x      (a mean has factor 1 / count)
//   l2    y = sqrt(sum x^2)
//   min, max                      NaN wins
//
//   gradients: l2         dx = dy * x / y, 0 where y is 0
//              min, max   dx = dy / (how many x equal y) where x equals y, else 0
//              (that of a sum is a product with a constant, broadcast: kernels/arithmetic.h)
//
/// Shapes    `kept` has one element for each y; its operands are x and y. `reduced` walks the x
/// that
///           belong to one y; its operand is x, from the place that `kept` says.
/// Writes    all of y (dx), assigned.
/// Aliasing  none.
/// Numerics  float sums run over fixed blocks, which are added in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels {

enum class Reduction : uint8_t { kSum, kL2, kMin, kMax };

struct ReduceParams {
  Reduction how = Reduction::kSum;
  Box<2> kept;
  Box<1> reduced;
  double factor = 1;  // kSum
};

namespace reference {  // T is float or double
template <typename T>
void reduce(const ReduceParams& p, const T* x, T* y);
template <typename T>  // not for kSum
void reduce_grad(const ReduceParams& p, const T* x, const T* y, const T* dy, T* dx);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void reduce(const ReduceParams& p, const float* x, float* y, Team& team);
void reduce_grad(const ReduceParams& p, const float* x, const float* y, const float* dy, float* dx,
                 Team& team);
}  // namespace cpu

namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
int64_t reduce_workspace_bytes(const ReduceParams& p);
void reduce(const ReduceParams& p, In x, Out y, void* workspace, CUstream_st* stream);
int64_t reduce_grad_workspace_bytes(const ReduceParams& p);
void reduce_grad(const ReduceParams& p, In x, In y, In dy, Out dx, void* workspace,
                 CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
