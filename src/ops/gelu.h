// src/ops/gelu.h: Gaussian error linear unit, y = x Phi(x).
// Inputs      x, any shape.    Output  y, as x.
// Attributes  approximate: "none" (default) or "tanh".
// Saves       x: dy/dx is not a function of y.
// Gradients   x, assigned.
// Refuses     another value of approximate.
// Kernels     activation_forward, activation_backward of GeluErf, GeluTanh (kernels/activation.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gelu_op();       // "Gelu"
const Op* gelu_grad_op();  // "GeluGrad": (x, dy) -> dx

}  // namespace trainyard
