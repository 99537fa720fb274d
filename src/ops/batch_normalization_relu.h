// src/ops/batch_normalization_relu.h: BatchNormalization with what stands behind it in one sweep
// over memory. No layer becomes these ops: src/passes/fuse.cc and recompute.cc put them into a
// graph.
//
// BatchNormalizationRelu: y = max(0, BatchNormalization(x) + residual)
// Inputs     as BatchNormalization; residual, as x, may be left out.
// Outputs    as BatchNormalization.
// Attributes as BatchNormalization.
//
// BatchNormalizationReluGrad: the gradients of both, from y's gradient
// Inputs     x, scale, saved_mean, saved_inv_std, dy; then b or y: where y is above 0 is read from
//            y, or, where there was no residual, found again from x and b.
// Outputs    dx, dscale, db; g, dy where y is above 0: the residual's gradient.
//
// SkipBatchNormalizationReluGrad: the same where y has two readers, whose gradients are added first
// Inputs     as BatchNormalizationReluGrad, b or y left out; skip, the other reader's.
// Outputs    as BatchNormalizationReluGrad; dx or g is wanted, and dy + skip is rounded as they
// are. Parts      Add, BatchNormalizationReluGrad (src/ops/parts.h): CPUs gain nothing by one
// kernel.
//
// BatchNormalizationReplay: training's y once more, from what it saved; no state is touched.
// Inputs     x, scale, b, saved_mean, saved_inv_std; residual, may be left out.
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
