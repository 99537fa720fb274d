// src/ops/global_average_pool.h: mean over all pixels of a channel, ONNX GlobalAveragePool.
// Inputs     x [N, C, H, W].    Output  y [N, C, 1, 1]
// Saves      nothing; the gradient node has the attribute input_shape.
// Gradients  x, assigned.
// Refuses    other ranks, empty dimensions.
// Kernels    global_average_pool_forward, global_average_pool_backward (kernels/pool.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* global_average_pool_op();  // "GlobalAveragePool"
/// "GlobalAveragePoolGrad": (dy) -> dx, attribute input_shape
const Op* global_average_pool_grad_op();

}  // namespace trainyard
