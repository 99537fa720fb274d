// src/ops/conv.h: two-dimensional convolution, ONNX Conv.
// Inputs     x [N, C, H, W]; w [K, C/G, R, S]; b [K], optional.    Output  y [N, K, P, Q]
// Attributes kernel_shape (must equal w's [R, S]), strides [1, 1], pads [0, 0, 0, 0] as
//            [top, left, bottom, right], dilations [1, 1], group 1 (G).
// Saves      x and w.
// Gradients  x, w, b, assigned; those not wanted are left out.
// Refuses    other ranks, channels that differ, a group that does not divide them, kernel_shape
// that
//            differs from w, a window larger than the padded image.
// Kernels    conv_forward, conv_backward_data, conv_backward_weights (kernels/conv.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* conv_op();       // "Conv"
const Op* conv_grad_op();  // "ConvGrad": (x, w, dy) -> (dx, dw, db)

}  // namespace trainyard
