// src/ops/max_pool.h: maximum over a sliding window, ONNX MaxPool without its optional Indices.
// Inputs     x [N, C, H, W].    Output  y [N, C, P, Q]
// Attributes kernel_shape (required), strides [1, 1], pads [0, 0, 0, 0], dilations [1, 1],
//            ceil_mode 0, storage_order 0.
// Saves      x: backward finds the maximum again, which costs less than keeping indices.
// Gradients  x, assigned; the first maximum of a window gets dy.
// Refuses    other ranks, pads not below kernel_shape, a window larger than the padded image or
// with
//            no cell inside it, other storage_order.
// Kernels    max_pool_forward, max_pool_backward (kernels/pool.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* max_pool_op();       // "MaxPool"
const Op* max_pool_grad_op();  // "MaxPoolGrad": (x, dy) -> dx

}  // namespace trainyard
