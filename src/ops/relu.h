// src/ops/relu.h: y = max(x, 0).
// Inputs     x, any shape.    Output  y, as x.
// Saves      y.
// Gradients  x, assigned.
// Kernels    activation_forward, activation_backward of Relu (kernels/activation.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* relu_op();       // "Relu"
const Op* relu_grad_op();  // "ReluGrad": (y, dy) -> dx

}  // namespace trainyard
