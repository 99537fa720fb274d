// src/ops/layer_normalization.h: ONNX LayerNormalization and RMSNormalization: each sample is
// normalised over its dimensions from `axis` on.
// Inputs     x, rank >= 1; scale, of shape x.shape[axis:]; LayerNormalization: b, as scale,
// optional. Outputs    y, as x; LayerNormalization: mean and inv_std_dev, RMSNormalization:
// inv_rms, of shape
//            x.shape[:axis] with ones behind it, written for backward (may be left out).
// Attributes axis, default -1; epsilon, default 1e-5, in (0, 1].
// Saves      x, scale and the outputs behind y.
// Gradients  x, scale, b, assigned: one node, what nobody needs is left out.
// Refuses    empty inputs; axis out of range; scale or b of another shape.
// Kernels    layer_norm_forward, layer_norm_backward (kernels/layer_norm.h)
//
// With the addition of a residual sum before it; no layer becomes these ops, but
// src/passes/fuse_sums.cc puts them into a graph. src/ops/parts.h says what they are made of.
//
// SkipLayerNormalization, SkipRMSNormalization: of sum = x + skip
// Inputs     as the op without; then skip, as x.    Outputs  as the op without; then sum, as x.
//
// SkipLayerNormalizationGrad, SkipRMSNormalizationGrad: dx = the gradient without + skip
// Inputs     as the gradient without, x being the sum; then skip, as x: what reaches the sum on its
//            other way.
//
// With a dropout in front of the sum:
//
// DropoutSkipLayerNormalization, DropoutSkipRMSNormalization: of sum = x + Dropout(skip)
// Inputs     as the Skip op; then step I64 [1].    Outputs  as the Skip op.
// Attributes those of Dropout, too.
//
// DropoutSkipLayerNormalizationGrad, DropoutSkipRMSNormalizationGrad: and dz = DropoutGrad(dx)
// Inputs     as the Skip op's gradient, whose skip may be left out; then step.
// Outputs    as the gradient without; then dz, as x.
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* layer_normalization_op();  // "LayerNormalization"
/// "LayerNormalizationGrad": (x, scale, dy, inv_std_dev, mean) -> (dx, dscale, db)
const Op* layer_normalization_grad_op();
const Op* rms_normalization_op();  // "RMSNormalization"
const Op*
rms_normalization_grad_op();  // "RMSNormalizationGrad": (x, scale, dy, inv_rms) -> (dx, dscale)

const Op* skip_layer_normalization_op();
const Op* skip_layer_normalization_grad_op();
const Op* skip_rms_normalization_op();
const Op* skip_rms_normalization_grad_op();

const Op* dropout_skip_layer_normalization_op();
const Op* dropout_skip_layer_normalization_grad_op();
const Op* dropout_skip_rms_normalization_op();
const Op* dropout_skip_rms_normalization_grad_op();

/// The first normalised dimension, counted from the front.
int64_t normalization_axis(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
