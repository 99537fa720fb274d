// src/ops/optimizer_update.h: one step of an optimizer, in place. kernels/optimizer.h has the
// kernels and the papers.
//
// All ops take p, updated; g, as p; learning_rate F32 [1], NaN to skip the step; then the inputs
// below. State has p's type and shape unless stated otherwise, and is updated. All ops have the
// attributes weight_decay, default 0, and rate_factor, default 1, which multiplies the learning
// rate.
//
// "SgdUpdate"    Inputs      v: only with momentum.
//                Attributes  momentum, nesterov (0 or 1); default 0.
//                Refuses     v without momentum and momentum without v.
// "AdamUpdate" adds the weight decay to the gradient, "AdamWUpdate" shrinks the parameter.
//                Inputs      step I64 [1], from 0; m and v, the moments.
//                Attributes  beta1, beta2, epsilon; defaults 0.9, 0.999, 1e-8.
// "RmspropUpdate"
//                Inputs      square; grad_avg: only if centered; momentum_buffer: only with
//                            momentum.
//                Attributes  alpha, epsilon, momentum; defaults 0.99, 1e-8, 0.
//                Refuses     momentum without its buffer and the buffer without momentum.
// "LionUpdate"   Inputs      m, the momentum.
//                Attributes  beta1, beta2; defaults 0.9, 0.99.
// "AdafactorUpdate"
//                Inputs      step I64 [1], from 0; column; row: the factored variances. For p
//                            [..., R, C] row is [..., R] and column [..., C]; for a vector [C]
//                            column is [C] and row is left out.
//                Attributes  beta2_decay, epsilon, scale_min, clip_threshold; defaults -0.8, 2^-23,
//                            1e-3, 1.
//                Refuses     variances of another shape; a row for a vector.
// "MuonUpdate"   Momentum, orthogonalized by Newton-Schulz iterations.
//                Inputs      m, the momentum, as p [A, B].
//                Attributes  momentum, nesterov and match_adamw (0 or 1), iterations;
//                            defaults 0.95, 1, 0, 5.
//                Refuses     ranks other than 2.
//
// All but the last two accept shards (shards.h): the attributes rank, default 0, and ranks, default
// 1; and an input rows, I32 [R]: g then has only these rows of p, and no others are updated. After
// it they accept the input copy, as p, which is set to the updated p: the 16-bit copy that the next
// step's products read (src/passes/keep_copies.h). It refuses ranks and rows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "src/graph/op.h"

namespace trainyard {

std::span<const Op* const> optimizer_update_ops();

/// Returns the index of the optional input copy of such an op; nothing for an op without one.
std::optional<size_t> copy_input(const Op& op);

/// Shapes of Adafactor's row and column variances of a parameter [..., R, C]: [..., R] and [...,
/// C]. For a vector, `row` is empty.
struct FactoredShapes {
  Shape row, column;
};
FactoredShapes factored_shapes(const Shape& parameter);

}  // namespace trainyard
