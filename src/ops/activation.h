// src/ops/activation.h: elementwise functions, which differ only in their formula.
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
// Refuses     attributes that are not finite; for Celu an alpha of 0; for Clip min above max; for
//             Gelu an unknown value of approximate.
// Kernels     activation_forward, activation_backward (kernels/activation.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// Returns all ops of this file: "Elu", ..., and their gradients "EluGrad", ...: (saved, dy) -> dx.
std::span<const Op* const> activation_ops();
/// Returns true for "Elu" and the others, false for their gradients.
bool is_activation(const Op& op);

// Passes recognize these ops by their address.
const Op* relu_op();
const Op* relu_grad_op();
const Op* gelu_op();
const Op* gelu_grad_op();

/// Returns the spread of an elementwise op: all inputs must be kOwn, or all kUnits; the outputs are
/// as the inputs.
std::optional<std::vector<Spread>> spread_elementwise(const std::vector<Spread>& inputs,
                                                      size_t outputs);

}  // namespace trainyard
