// src/ops/pointwise_loss.h: losses of numbers (regression), as the mean over all elements.
//
//   MeanSquaredError, MeanAbsoluteError, HuberLoss (delta), BinaryCrossEntropyLoss (pos_weight; of
//   logits)
//
// Inputs      prediction [N, ...]; target, of the same shape and type; BinaryCrossEntropyLoss also
//             takes I32 classes 0 and 1, one per element. The target has no gradient.
// Output      loss [1].
// Attributes  as named above, 1 by default (kernels/math/losses.h).
// Saves       nothing of its own; the gradient reads both inputs.
// Gradients   prediction, assigned.
// Refuses     shapes or types that differ; attributes that are not finite and more than 0.
// Kernels     pointwise_loss, pointwise_loss_grad (kernels/pointwise_loss.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// Returns all ops of this file: "HuberLoss", ..., and their gradients "HuberLossGrad", ...:
/// (prediction, target, dloss) -> dprediction.
std::span<const Op* const> pointwise_loss_ops();

}  // namespace trainyard
