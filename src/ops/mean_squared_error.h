// src/ops/mean_squared_error.h: regression loss, mean of (prediction - target)^2 over all elements.
// Inputs     prediction [N, ...]; target, of the same shape, no gradient.    Output  loss [1].
// Saves      nothing of its own; the gradient reads both inputs.
// Gradients  prediction, assigned.
// Refuses    shapes or types that differ.
// Kernels    mse_forward, mse_backward (kernels/mse.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* mean_squared_error_op();  // "MeanSquaredError"
// "MeanSquaredErrorGrad": (prediction, target, dloss) -> dprediction
const Op* mean_squared_error_grad_op();

}  // namespace trainyard
