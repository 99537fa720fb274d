// src/ops/gradient_norm.h: the global norm of all gradients, and the factor that clips them.
//
// GradientNorm     Inputs gradients, any number, of any shapes and one type; with `scaled` then the
//                  loss scale [1] that is included in them.
//                  Outputs norm [1]; scale [1], optional: min(1, max_norm / (norm + 1e-6)). With a
//                  loss scale, norm is that of the gradients divided by it, and scale includes this
//                  division.
//                  Attributes max_norm; 0, the default, clips nothing. scaled, default 0. ranks,
//                  default 1: on a host the squares are summed shard by shard (kernels/shard.h), in
//                  the same order as so many ranks sum them with the two ops below.
// GradientSquares  Inputs this rank's shards of gradients, or whole gradients that all ranks have;
//                  any number, one type, kOwn or parts. Output the sum of their squares, F64 [1],
//                  kOwn. Attributes counts: the number of elements that count in each input, which
//                  may be fewer than it has; firsts: the first element that counts in each, default
//                  0.
// NormOfSquares    Inputs the mean of GradientSquares over all ranks, F64 [1]; with `scaled` the
//                  loss scale [1]. Outputs norm and scale as GradientNorm, F32. Attributes ranks;
//                  max_norm; scaled.
// Refuses          no gradient; types that differ.
// Kernels          gradient_norm, gradient_squares, norm_of_squares (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gradient_norm_op();     // "GradientNorm"
const Op* gradient_squares_op();  // "GradientSquares"
const Op* norm_of_squares_op();   // "NormOfSquares"

}  // namespace trainyard
