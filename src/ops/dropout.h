// src/ops/dropout.h: in training, zeroes each element with probability `ratio` and scales the
// others by 1 / (1 - ratio). Graphs for evaluation have no such node.
// Inputs      x, any shape; step I64 [1], the optimizer step.    Output  y, as x.
// Attributes  ratio in [0, 1), required; seed; stream: stream_of(node name), so that nodes draw
//             different masks; rank: which part of a batch x is, if several devices share the
//             batch, default 0. units: x has the columns from first_unit on of a matrix with
//             `units` columns and draws the same mask for them as the whole matrix would, on every
//             rank; default 0: x is whole. units, first_unit and the columns of x are multiples of
//             4.
// Saves       nothing: the mask is a Philox function of (seed, stream, step, element), drawn again
//             in backward. Ten integer rounds per four elements cost less than the memory traffic
//             of a mask. Elements are numbered in physical order.
// Gradients   x, assigned.
// Spread      that of x: kOwn or kUnits.
// Kernels     dropout, forward and backward (kernels/dropout.h)
#pragma once

#include <array>
#include <string_view>

#include "src/graph/op.h"

namespace trainyard {

class OpChecks;  // src/ops/shape_helpers.h

const Op* dropout_op();       // "Dropout"
const Op* dropout_grad_op();  // "DropoutGrad": (dy, step) -> dx

/// The attributes of Dropout, for every op that includes a dropout.
inline constexpr std::array<std::string_view, 4> kDropoutAttributes = {"ratio", "seed", "stream",
                                                                       "rank"};

/// If the units of a row are split over ranks, each rank must have a multiple of this number,
/// because one Philox call serves so many elements.
inline constexpr int64_t kUnitsDrawnTogether = 4;
inline constexpr const char* kDrawnUnits = "units";
inline constexpr const char* kFirstDrawnUnit = "first_unit";

/// Checks ratio, seed, stream, rank and the input `step`, for every op that includes a dropout. The
/// parameter `step` is that input's index.
void check_dropout(OpChecks& check, const InferContext& c, int64_t step);

}  // namespace trainyard
