// src/ops/unary.h: the functions of one number that differ in their formula alone. Relu, Sigmoid,
// Tanh and Gelu have pairs of files of their own.
//
//   LeakyRelu (alpha), ThresholdedRelu (alpha), Elu (alpha), Selu (alpha, gamma), Celu (alpha),
//   Softplus, Softsign, HardSigmoid (alpha, beta), HardSwish, Swish (alpha; SiLU), Mish,
//   Neg, Abs, Exp, Log, Sqrt, Reciprocal, Clip (min, max)
//
// Inputs      x, any shape.    Output  y, as x.
// Attributes  as named above, with ONNX's defaults (kernels/math/activations.h).
// Saves       x or y, as the formula's comment says.
// Gradients   x, assigned.
// Refuses     attributes that are not finite; Celu: an alpha of 0; Clip: min above max.
// Kernels     activation_forward, activation_backward (kernels/activation.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// "Elu", ... and "EluGrad": (saved, dy) -> dx.
std::span<const Op* const> unary_ops();

}  // namespace trainyard
