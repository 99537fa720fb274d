// src/ops/dropout.h: in training, zeroes each element with probability `ratio` and scales the rest
// by 1 / (1 - ratio). A graph for evaluation leaves the node out.
// Inputs      x, any shape; step I64 [1], the optimizer step.    Output  y, as x.
// Attributes  ratio in [0, 1), required; seed; stream: stream_of(node name), so that nodes differ;
//             rank: x is that part of a batch which several devices share, default 0.
// Saves       nothing: the mask is a Philox function of (seed, stream, step, element), drawn again
//             in backward. Ten integer rounds per four elements cost less than a mask's memory
//             traffic. The element index counts in physical order.
// Gradients   x, assigned.
// Kernels     dropout, both ways (kernels/dropout.h)
#pragma once

#include <array>
#include <string_view>

#include "src/graph/op.h"

namespace trainyard {

class OpChecks;  // src/ops/shape_helpers.h

const Op* dropout_op();       // "Dropout"
const Op* dropout_grad_op();  // "DropoutGrad": (dy, step) -> dx

/// The attributes of Dropout, for every op that has one within.
inline constexpr std::array<std::string_view, 4> kDropoutAttributes = {"ratio", "seed", "stream",
                                                                       "rank"};

/// Checks ratio, seed, stream and rank, and the step, which is input `step`: for every op that has
/// a dropout within.
void check_dropout(OpChecks& check, const InferContext& c, int64_t step);

}  // namespace trainyard
