// src/ops/conv.h: two-dimensional convolution, ONNX Conv.
// Inputs     x [N, C, H, W]; w [K, C/G, R, S]; b [K], optional.    Output  y [N, K, P, Q]
// Attributes kernel_shape (must equal w's [R, S]), strides [1, 1], pads [0, 0, 0, 0] as [top, left,
//            bottom, right], dilations [1, 1], group 1 (G).
// Saves      x and w.
// Gradients  x, w, b, assigned; unneeded outputs are left out.
// Refuses    other ranks, channels that differ, a group that does not divide them, a kernel_shape
//            that differs from w's, a window larger than the padded image.
// Kernels    conv_forward, conv_backward_data, conv_backward_weights (kernels/conv.h)
//
// The ops below are fused with ReLU. No layer creates them: src/passes/fuse_convolutions.cc inserts
// them into graphs, and src/ops/parts.h lists their parts.
//
// ConvRelu: y = relu(Conv(x, w, b)), b required
//
// ReluConvGrad: the gradients of ConvRelu
// Inputs     x; w; dy; y.    Outputs  as ConvGrad; then dpre, as y: the gradient before ReLU.
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* conv_op();       // "Conv"
const Op* conv_grad_op();  // "ConvGrad": (x, w, dy) -> (dx, dw, db)

const Op* conv_relu_op();       // "ConvRelu": (x, w, b) -> y
const Op* relu_conv_grad_op();  // "ReluConvGrad": (x, w, dy, y) -> (dx, dw, db, dpre)

}  // namespace trainyard
