// src/ops/optimizer_update.h: one step of an optimizer, in place. kernels/optimizer.h has the
// kernels and the papers.
//
// All take p, updated; g, as p; learning_rate F32 [1], NaN for "no step"; then their own inputs.
// An updated input has p's type and shape unless its line says otherwise. All have the attributes
// weight_decay, default 0, and rate_factor, default 1, which multiplies the learning rate.
//
// "SgdUpdate"    Inputs      v: with momentum alone.
//                Attributes  momentum, nesterov (0 or 1); default 0.
//                Refuses     v without momentum and momentum without v.
// "AdamUpdate" adds the weight decay to the gradient, "AdamWUpdate" shrinks the parameter.
//                Inputs      step I64 [1], from 0; m and v, the moments.
//                Attributes  beta1, beta2, epsilon; defaults 0.9, 0.999, 1e-8.
// "RmspropUpdate"
//                Inputs      square; grad_avg: when centered alone; momentum_buffer: with momentum
//                            alone.
//                Attributes  alpha, epsilon, momentum; defaults 0.99, 1e-8, 0.
//                Refuses     momentum without its buffer and the buffer without momentum.
// "LionUpdate"   Inputs      m, the momentum.
//                Attributes  beta1, beta2; defaults 0.9, 0.99.
// "AdafactorUpdate"
//                Inputs      step I64 [1], from 0; column; row. Of p [..., R, C] the variances are
//                            row [..., R] and column [..., C]; a vector [C] has column [C] alone.
//                Attributes  beta2_decay, epsilon, scale_min, clip_threshold; defaults -0.8, 2^-23,
//                            1e-3, 1.
//                Refuses     variances of another shape; a row for a vector.
// "MuonUpdate"   Momentum, made orthogonal by Newton-Schulz.
//                Inputs      m, the momentum, of p [A, B].
//                Attributes  momentum, nesterov and match_adamw (0 or 1), iterations;
//                            defaults 0.95, 1, 0, 5.
//                Refuses     ranks other than 2.
//
// All but the last two know shards (shards.h): the attributes rank and ranks, default 0 of 1, and a
// last input, rows: g has these rows alone, and no other is updated.
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

std::span<const Op* const> optimizer_update_ops();

/// Shapes of Adafactor's variances of a parameter: [..., R] and [..., C]. Of a vector the row is
/// empty.
struct FactoredShapes {
  Shape row, column;
};
FactoredShapes factored_shapes(const Shape& parameter);

}  // namespace trainyard
