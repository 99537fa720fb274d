// src/ops/loss_scale_update.h: dynamic loss scaling. Decides whether a step is skipped, and
// computes the scale of the next step.
// Inputs      scale [1], updated: the factor of the loss that this step's gradients include;
//             good_steps I64 [1], updated: steps since the last change of the scale; updates I64
//             [1], updated: steps that were not skipped; norm [1], that of GradientNorm;
//             learning_rate F32 [1].
// Outputs     learning_rate F32 [1]: NaN, with which every update does nothing, if norm is not
//             finite; step I64 [1]: number of this step, from 0, without the skipped ones; scale
//             [1]: this step's scale.
// Attributes  growth, backoff, interval; defaults 2, 0.5, 2000.
// Refuses     a growth below 1, a backoff outside of (0, 1], an interval below 1.
// Kernels     loss_scale_update (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* loss_scale_update_op();  // "LossScaleUpdate"

}  // namespace trainyard
