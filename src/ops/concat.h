// src/ops/concat.h: tensors side by side along one axis, and back.
//
// Concat. Inputs  x0, x1, ..., alike but for their size along the axis.    Output  y.
// Split.  Input   x.    Outputs  y0, y1, ... as the sizes say.
// Attributes  axis (Concat: required; Split: 0). Split: split, the sizes, or num_outputs, that many
//             equal ones (the last is smaller if they do not divide), as in ONNX.
// Saves       nothing.
// Gradients   all inputs, assigned. An output of Split that nobody reads counts as zeros.
// Refuses     ranks and sizes that differ elsewhere; sizes that do not add up.
// Kernels     copy (kernels/movement.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* concat_op();       // "Concat"
const Op* concat_grad_op();  // "ConcatGrad": dy -> dx0, dx1, ...; attributes axis, split
const Op* split_op();        // "Split"
const Op* split_grad_op();   // "SplitGrad": (dy0, dy1, ...) -> dx; attributes axis, split

constexpr int64_t kPartsMax = 1024;  // inputs of a Concat, outputs of a Split

/// Sizes of the outputs of a Split or ConcatGrad along their axis, or of the inputs of a SplitGrad.
std::vector<int64_t> split_sizes(const Attributes& attributes, int64_t whole);

}  // namespace trainyard
