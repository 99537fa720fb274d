// src/ops/batch_normalization_relu.h: BatchNormalization fused with the ReLU after it, in one sweep
// over memory. No layer creates these ops: src/passes/fuse.cc and recompute.cc insert them into
// graphs.
//
// BatchNormalizationRelu: y = max(0, BatchNormalization(x) + residual)
// Inputs     as BatchNormalization; residual, as x, optional.
// Outputs    as BatchNormalization.
// Attributes as BatchNormalization.
//
// BatchNormalizationReluGrad: the gradients of both, from y's gradient
// Inputs     x, scale, saved_mean, saved_inv_std, dy; then y or b, which show where y is above 0: y
//            directly, or, if there was no residual, b by computing y again from x.
// Outputs    dx, dscale, db; g: dy where y is above 0, else 0, which is the residual's gradient.
//
// SkipBatchNormalizationReluGrad: for a y with two readers: adds their gradients first
// Inputs     as BatchNormalizationReluGrad, either b or y; skip, the gradient from the other
//            reader.
// Outputs    as BatchNormalizationReluGrad; dx or g is required, and dy + skip is rounded to its
//            type.
// Parts      Add, BatchNormalizationReluGrad (src/ops/parts.h): CPUs gain nothing from a fused
//            kernel.
//
// BatchNormalizationReplay: y again, from the saved statistics; updates no state.
// Inputs     x, scale, b, saved_mean, saved_inv_std; residual, optional.
// Attributes relu 0 or 1.
// Kernels    batch_norm_training, _inference, _backward with relu; batch_norm_replay
//            (kernels/batch_norm.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* batch_normalization_relu_op();       // "BatchNormalizationRelu"
const Op* batch_normalization_relu_grad_op();  // "BatchNormalizationReluGrad"
/// "SkipBatchNormalizationReluGrad"
const Op* skip_batch_normalization_relu_grad_op();
const Op* batch_normalization_replay_op();  // "BatchNormalizationReplay"

}  // namespace trainyard
