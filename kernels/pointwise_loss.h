// kernels/pointwise_loss.h: the mean of an elementwise loss, for every F in kernels/math/losses.h.
//
//   loss = (1/M) sum_i F::f(y[i], t[i])        dy[i] = (dloss/M) F::df(y[i], t[i])
//
/// Shapes    y, t, dy `count` = M elements; loss, dloss [1]. Targets may be classes 0 and 1.
/// Writes    loss, or all of dy; assigned.
/// Aliasing  dy may be y.
/// Numerics  the sum runs in double, in order.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/losses.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// Target is T, or int32_t for the classes 0 and 1.
template <typename T, typename Target>
struct PointwiseLossOperands {
  const NumberOf<T>* y;  // [M]
  const Target* t;       // [M]
  NumberOf<T>* loss;     // [1]
};
template <typename T, typename Target>
struct PointwiseLossGradOperands {
  const NumberOf<T>* y;      // [M]
  const Target* t;           // [M]
  const NumberOf<T>* dloss;  // [1]
  NumberOf<T>* dy;           // [M]
};

template <typename T, typename Target>
void check(int64_t count, const PointwiseLossOperands<T, Target>& o) {
  Contract("pointwise_loss")
      .size("count", count)
      .given("y", o.y)
      .given("t", o.t)
      .given("loss", o.loss);
}
template <typename T, typename Target>
void check(int64_t count, const PointwiseLossGradOperands<T, Target>& o) {
  Contract("pointwise_loss_grad")
      .size("count", count)
      .given("y", o.y)
      .given("t", o.t)
      .given("dloss", o.dloss)
      .given("dy", o.dy);
}

namespace reference {  // T is float or double
template <typename F, typename T, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<T, Target>& o,
                    Run<T> run = {});
template <typename F, typename T, typename Target>
void pointwise_loss_grad(const F& f, int64_t count, const PointwiseLossGradOperands<T, Target>& o,
                         Run<T> run = {});
}  // namespace reference

/// Losses are added in double in fixed blocks: results are bit-identical for any team size.
namespace cpu {
int64_t pointwise_loss_workspace_bytes(int64_t count);
template <typename F, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<float, Target>& o,
                    Run run);
template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count,
                         const PointwiseLossGradOperands<float, Target>& o, Run run);
}  // namespace cpu

/// A thread's losses are summed in F32, the blocks' sums in double, always in the same order.
/// Launches: loss 2, gradient 1.
namespace cuda {
int64_t pointwise_loss_workspace_bytes(int64_t count);
template <typename F, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<Views, Target>& o,
                    Run run);
template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count,
                         const PointwiseLossGradOperands<Views, Target>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
