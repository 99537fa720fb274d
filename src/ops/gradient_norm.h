// src/ops/gradient_norm.h: the global norm of all gradients, and what clipping multiplies them by.
//
// GradientNorm     Inputs gradients, any number of any shapes, one type; behind them the loss scale
//                  [1] that they were multiplied by, where `scaled` says so.
//                  Outputs norm [1]; scale [1], optional: min(1, max_norm / (norm + 1e-6)).
//                  With a loss scale the norm is that of the gradients over it, and scale divides
//                  too.
//                  Attributes max_norm; 0, the default, clips nothing. scaled, default 0. ranks,
//                  default 1: on a host squares are summed shard by shard (kernels/shard.h), as so
//                  many ranks do by the next two.
// GradientSquares  Inputs this rank's shards of gradients, or gradients that all ranks have alike;
//                  any number, one type, kOwn, kClasses or kElements. Output the sum of their
//                  squares, F64 [1], kOwn. Attributes counts: elements of each shard, which may be
//                  fewer than its tensor has; firsts: where it begins, by default at 0.
// NormOfSquares    Inputs the mean of GradientSquares over all ranks, F64 [1]; the loss scale [1]
//                  where `scaled` says so. Outputs norm and scale of GradientNorm, F32. Attributes
//                  ranks; max_norm; scaled.
// Refuses          no gradient; types that differ.
// Kernels          gradient_norm, gradient_squares, norm_of_squares (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gradient_norm_op();     // "GradientNorm"
const Op* gradient_squares_op();  // "GradientSquares"
const Op* norm_of_squares_op();   // "NormOfSquares"

}  // namespace trainyard
