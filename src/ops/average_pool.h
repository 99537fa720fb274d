// src/ops/average_pool.h: mean over a sliding window, ONNX AveragePool.
// Inputs     x [N, C, H, W].    Output  y [N, C, P, Q]
// Attributes kernel_shape (required), strides [1, 1], pads [0, 0, 0, 0], count_include_pad 0 (0
//            divides by the number of cells inside the image, 1 by R*S), dilations [1, 1],
//            ceil_mode 0. PyTorch's default is count_include_pad 1.
// Saves      nothing; the gradient node has the attribute input_shape.
// Gradients  x, assigned.
// Refuses    other ranks, pads not below kernel_shape, a window larger than the padded image or
//            with no cell inside it, ceil_mode together with count_include_pad.
// Kernels    average_pool_forward, average_pool_backward (kernels/pool.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* average_pool_op();       // "AveragePool"
const Op* average_pool_grad_op();  // "AveragePoolGrad": (dy) -> dx, attribute input_shape

}  // namespace trainyard
