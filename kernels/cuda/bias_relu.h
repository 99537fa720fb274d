// kernels/cuda/bias_relu.h: a bias and ReLU behind a convolution, and their gradients, in one sweep
// each.
//
//   forward   y = relu(y + bias)            dpre[i] = y[i] > 0 ? dy[i] : 0
//   backward  dpre of y and dy,             db[k] = sum of dpre, as it is stored, in channel k
//
/// Shapes    y, dy, dpre [N, K, P, Q], channels-last or row-major alike; bias, db [K], F32.
/// Writes    all of y, of dpre and of db, assigned.
/// Aliasing  dpre may be y or dy.
/// Numerics  NaN and infinities go through. Sums in an order that the shapes decide (reduction.h).
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/image.h"

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

void bias_relu(const ImageDims& d, bool channels_last, const float* bias, Out y,
               CUstream_st* stream);

int64_t bias_relu_backward_workspace_bytes(const ImageDims& d, bool channels_last);
void bias_relu_backward(const ImageDims& d, bool channels_last, In y, In dy, Out dpre, float* db,
                        void* workspace, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
