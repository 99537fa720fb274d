// src/ops/activation.h: functions of one number, which differ in their formula alone.
//
//   Relu, Sigmoid, Tanh, Gelu (approximate: "none", the default, or "tanh"), LeakyRelu (alpha),
//   ThresholdedRelu (alpha), Elu (alpha), Selu (alpha, gamma), Celu (alpha), Softplus, Softsign,
//   HardSigmoid (alpha, beta), HardSwish, Swish (alpha; SiLU), Mish, Neg, Abs, Exp, Log, Sqrt,
//   Reciprocal, Clip (min, max)
//
// Inputs      x, any shape.    Output  y, as x.
// Attributes  as named above, with ONNX's defaults (kernels/math/activations.h).
// Saves       x or y, as the op's row says.
// Gradients   x, assigned.
// Refuses     attributes that are not finite; Celu: an alpha of 0; Clip: min above max; Gelu:
//             another value of approximate.
// Kernels     activation_forward, activation_backward (kernels/activation.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// "Elu", ... and "EluGrad": (saved, dy) -> dx.
std::span<const Op* const> activation_ops();
/// True for "Elu", ..., not for their gradients.
bool is_activation(const Op& op);

// Passes look for these by address.
const Op* relu_op();
const Op* relu_grad_op();
const Op* gelu_op();
const Op* gelu_grad_op();

/// What has one number for each of its inputs' takes hidden units as it takes rows: all inputs are
/// kOwn, or all are kUnits, and so are the outputs.
std::optional<std::vector<Spread>> spread_elementwise(const std::vector<Spread>& inputs,
                                                      size_t outputs);

}  // namespace trainyard
