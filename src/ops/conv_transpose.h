// src/ops/conv_transpose.h: transposed convolution, ONNX ConvTranspose.
// Inputs     x [N, C, H, W]; w [C, K/G, R, S]; b [K], optional.    Output  y [N, K, P, Q]
//            P = (H - 1) * stride + output_padding + (R - 1) * dilation + 1 - pads, Q likewise
// Attributes kernel_shape (must equal w's [R, S]), strides [1, 1], pads [0, 0, 0, 0] as [top, left,
//            bottom, right], dilations [1, 1], output_padding [0, 0], group 1.
// Saves      x and w.
// Gradients  x, w, b, assigned; unneeded outputs are left out.
// Refuses    other ranks, channels that differ, a group that does not divide them, a kernel_shape
//            that differs from w's, output_padding that is not below strides, an output without
//            pixels.
// Kernels    conv_transpose_forward, _backward_data, _backward_weights (kernels/conv_transpose.h)
#pragma once

#include "kernels/conv.h"
#include "src/graph/op.h"

namespace trainyard {

const Op* conv_transpose_op();       // "ConvTranspose"
const Op* conv_transpose_grad_op();  // "ConvTransposeGrad": (x, w, dy) -> (dx, dw, db)

/// Returns the dimensions of the convolution from y to x, of which this op is the transpose; the
/// kernels take these.
kernels::ConvDims conv_transpose_dims(const Attributes& attributes, const Shape& x, const Shape& w);

}  // namespace trainyard
