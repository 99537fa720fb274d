// src/ops/gradient_norm.h: the global norm of all gradients, and what clipping multiplies them by.
// Inputs      gradients, any number of any shapes, one type; behind them the loss scale [1] that
//             they were multiplied by, where `scaled` says so.
// Outputs     norm [1]; scale [1], optional: min(1, max_norm / (norm + 1e-6)).
//             With a loss scale the norm is that of the gradients over it, and scale divides too.
// Attributes  max_norm; 0, the default, clips nothing. scaled, default 0.
// Refuses     no gradient; types that differ.
// Kernels     gradient_norm (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gradient_norm_op();  // "GradientNorm"

}  // namespace trainyard
