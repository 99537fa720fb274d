// src/ops/dropout.h: in training, zeroes each element with probability `ratio` and scales the rest
// by 1 / (1 - ratio). A graph for evaluation leaves the node out.
// Inputs      x, any shape; step I64 [1], the optimizer step.    Output  y, as x.
// Attributes  ratio in [0, 1), required; seed; stream: stream_of(node name), so that nodes differ;
//             rank: x is that part of a batch which several devices share, default 0. units: x has
//             columns first_unit, first_unit + 1, ... of a matrix of so many, of all rows, and
//             draws what they do, whatever the rank; default 0, x is whole. Both and x's own are
//             multiples of 4.
// Saves       nothing: the mask is a Philox function of (seed, stream, step, element), drawn again
//             in backward. Ten integer rounds per four elements cost less than a mask's memory
//             traffic. The element index counts in physical order.
// Gradients   x, assigned.
// Spread      of x: kOwn or kUnits.
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

/// Where the units of a row are drawn for by themselves: their number is a multiple of this.
inline constexpr int64_t kUnitsDrawnTogether = 4;
inline constexpr const char* kDrawnUnits = "units";
inline constexpr const char* kFirstDrawnUnit = "first_unit";

/// Checks ratio, seed, stream and rank, and the step, which is input `step`: for every op that has
/// a dropout within.
void check_dropout(OpChecks& check, const InferContext& c, int64_t step);

}  // namespace trainyard
