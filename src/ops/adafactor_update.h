// src/ops/adafactor_update.h: one step of Adafactor, in place.
// Inputs      p, updated; g, as p; learning_rate F32 [1]; step I64 [1], from 0; column, updated;
//             row, updated. Of p [..., R, C] the variances are row [..., R] and column [..., C]; of
//             a vector [C] there is column [C] alone.
// Attributes  beta2_decay, epsilon, scale_min, clip_threshold, weight_decay, rate_factor; defaults
//             -0.8, 2^-23, 1e-3, 1, 0, 1.
// Refuses     variances of another shape; a row for a vector.
// Kernels     adafactor (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* adafactor_update_op();  // "AdafactorUpdate"

/// Shapes of the variances of a parameter: [..., R] and [..., C]. Of a vector the row is empty.
struct FactoredShapes {
  Shape row, column;
};
FactoredShapes factored_shapes(const Shape& parameter);

}  // namespace trainyard
