// kernels/cuda/bias_relu.h: fused bias and ReLU after a convolution, and their gradients, in one
// pass each.
//
//   forward   y = relu(y + bias)            dpre[i] = y[i] > 0 ? dy[i] : 0
//   backward  dpre of y and dy,             db[k] = sum of dpre, as it is stored, in channel k
//
/// Shapes    y [N, K, P, Q] and its gradients, all channels-last or all row-major; bias [K], F32.
/// Writes    all of y, of dpre and of db, assigned.
/// Aliasing  dpre may be y or dy.
/// Numerics  NaN and infinities are propagated. The order of sums depends only on the shapes
///           (reduction.h).
#pragma once

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels::cuda {  // asynchronous; cudaPeekAtLastError() reports failures

void bias_relu(const ImageDims& d, bool channels_last, const float* bias, Out y, Run run);

int64_t bias_relu_backward_workspace_bytes(const ImageDims& d, bool channels_last);
struct BiasReluGradOperands {
  In y, dy;   // [N, K, P, Q]
  Out dpre;   // [N, K, P, Q]
  float* db;  // [K]
};
void bias_relu_backward(const ImageDims& d, bool channels_last, const BiasReluGradOperands& o,
                        Run run);

}  // namespace trainyard::kernels::cuda
