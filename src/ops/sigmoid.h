// src/ops/sigmoid.h: y = 1 / (1 + exp(-x)).
// Inputs     x, any shape.    Output  y, as x.
// Saves      y.
// Gradients  x, assigned.
// Kernels    activation_forward, activation_backward of Sigmoid (kernels/activation.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sigmoid_op();       // "Sigmoid"
const Op* sigmoid_grad_op();  // "SigmoidGrad": (y, dy) -> dx

}  // namespace trainyard
