// src/ops/layer_normalization.h: ONNX LayerNormalization and RMSNormalization: each sample is
// normalized over its dimensions from `axis` on.
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
// With the addition of a residual sum before it, and maybe a dropout in front of that; no layer
// becomes these ops, but src/passes/fuse_sums.cc puts them into a graph. src/ops/parts.h says what
// they are made of.
//
// SkipNormalization: of sum = x + skip, or with a step of sum = x + Dropout(skip)
// Inputs     x, scale, b, skip, step. b as LayerNormalization, none in the form rms; skip as x;
// step
//            I64 [1], if there is a dropout.
// Outputs    y; mean, which the form rms leaves out; inv_std_dev or inv_rms; sum, as x.
// Attributes form, layer (default) or rms: which normalization; axis and epsilon; with a step those
//            of Dropout, too.
//
// SkipNormalizationGrad: dx = the gradient without the sum + skip; with a step dz = DropoutGrad(dx)
// Inputs     x (the sum), scale, dy, inv_std_dev or inv_rms, mean (none in the form rms), skip,
// step.
//            skip, as x, is what reaches the sum on its other way; with a step it may be left out.
// Outputs    dx, dscale, db, dz.
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

/// What is divided by: the deviations' root mean square, or that of the values as they are.
enum class NormalizationForm : uint8_t { kLayer, kRms };

const Op* layer_normalization_op();  // "LayerNormalization"
/// "LayerNormalizationGrad": (x, scale, dy, inv_std_dev, mean) -> (dx, dscale, db)
const Op* layer_normalization_grad_op();
const Op* rms_normalization_op();  // "RMSNormalization"
/// "RMSNormalizationGrad": (x, scale, dy, inv_rms) -> (dx, dscale)
const Op* rms_normalization_grad_op();
const Op* skip_normalization_op();       // "SkipNormalization"
const Op* skip_normalization_grad_op();  // "SkipNormalizationGrad"

/// Of the ops of a sum: their attribute `form`.
NormalizationForm normalization_form(const Attributes& attributes);

/// The first normalized dimension, counted from the front.
int64_t normalization_axis(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
