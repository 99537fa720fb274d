// src/ops/tanh.h: y = tanh(x).
// Inputs     x, any shape.    Output  y, as x.
// Saves      y.
// Gradients  x, assigned.
// Kernels    activation_forward, activation_backward of Tanh (kernels/activation.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* tanh_op();       // "Tanh"
const Op* tanh_grad_op();  // "TanhGrad": (y, dy) -> dx

}  // namespace trainyard
