// src/ops/loss_scale_update.h: dynamic loss scaling: whether a step is taken, and the scale of the
// next.
// Inputs      scale [1], updated: what the loss was multiplied by before its gradients were made;
//             good_steps and updates I64 [1], updated: steps since the scale changed, and in all;
//             norm [1], GradientNorm's; learning_rate F32 [1].
// Outputs     learning_rate F32 [1]: NaN, which every update takes for "no step", where the norm is
//             not finite; step I64 [1]: of those that are taken, from 0; scale [1]: this step's.
// Attributes  growth, backoff, interval; defaults 2, 0.5, 2000.
// Refuses     a growth below 1, a backoff outside of (0, 1], an interval below 1.
// Kernels     loss_scale_update (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* loss_scale_update_op();  // "LossScaleUpdate"

}  // namespace trainyard
