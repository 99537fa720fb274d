// src/ops/layer_normalization.h: ONNX LayerNormalization and RMSNormalization, which normalize each
// sample over its dimensions from `axis` on.
// Inputs     x, rank >= 1; scale, of shape x.shape[axis:]; LayerNormalization: b, as scale,
//            optional.
// Outputs    y, as x; LayerNormalization: mean and inv_std_dev, RMSNormalization: inv_rms, of shape
//            x.shape[:axis] followed by ones, written for backward (may be left out).
// Attributes axis, default -1; epsilon, default 1e-5, in (0, 1].
// Saves      x, scale and the outputs after y.
// Gradients  x, scale, b, assigned by one node; unneeded outputs are left out.
// Refuses    empty inputs; axis out of range; scale or b of another shape.
// Kernels    layer_norm_forward, layer_norm_backward (kernels/layer_norm.h)
//
// The ops below are fused with the residual sum before the normalization, and optionally with the
// dropout before that sum. No layer creates them: src/passes/fuse_sums.cc inserts them into graphs,
// and src/ops/parts.h lists their parts.
//
// SkipNormalization: normalizes sum = x + skip or, if there is a step, sum = x + Dropout(skip)
// Inputs     x, scale, b, skip, step. b as LayerNormalization, left out in the form rms; skip as x;
//            step I64 [1], only with dropout.
// Outputs    y; mean, left out in the form rms; inv_std_dev or inv_rms; sum, as x.
// Attributes form: layer (default) or rms, the kind of normalization; axis and epsilon; with a step
//            also those of Dropout.
//
// SkipNormalizationGrad: dx = skip + normalization's gradient; with a step, dz = DropoutGrad(dx)
// Inputs     x (the sum), scale, dy, inv_std_dev or inv_rms, mean (left out in the form rms), skip,
//            step. skip, as x, is the gradient of the sum from its other readers; with a step it
//            may be left out.
// Outputs    dx, dscale, db, dz.
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

/// The divisor: kLayer divides by the standard deviation, kRms by the root mean square of the
/// values.
enum class NormalizationForm : uint8_t { kLayer, kRms };

const Op* layer_normalization_op();  // "LayerNormalization"
/// "LayerNormalizationGrad": (x, scale, dy, inv_std_dev, mean) -> (dx, dscale, db)
const Op* layer_normalization_grad_op();
const Op* rms_normalization_op();  // "RMSNormalization"
/// "RMSNormalizationGrad": (x, scale, dy, inv_rms) -> (dx, dscale)
const Op* rms_normalization_grad_op();
const Op* skip_normalization_op();       // "SkipNormalization"
const Op* skip_normalization_grad_op();  // "SkipNormalizationGrad"

/// Returns the value of the attribute `form` of SkipNormalization and SkipNormalizationGrad.
NormalizationForm normalization_form(const Attributes& attributes);

/// Returns the first normalized dimension, counted from the front.
int64_t normalization_axis(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
