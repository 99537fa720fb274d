// src/ops/concat.h: joins tensors along one axis, and splits them.
//
// Concat. Inputs  x0, x1, ..., of the same shape except along the axis.    Output  y.
// Split.  Input   x.    Outputs  y0, y1, ... of the given sizes.
// Attributes  axis (Concat: required; Split: 0). Split also has split, the sizes, or num_outputs,
//             the number of equal parts (the last is smaller if the size is not divisible), as in
//             ONNX.
// Saves       nothing.
// Gradients   all inputs, assigned. An output of Split that nothing reads has a gradient of zeros.
// Refuses     ranks and sizes that differ elsewhere; sizes that do not add up.
// Kernels     copy (kernels/movement.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* concat_op();       // "Concat"
const Op* concat_grad_op();  // "ConcatGrad": dy -> dx0, dx1, ...; attributes axis, split
const Op* split_op();        // "Split"
const Op* split_grad_op();   // "SplitGrad": (dy0, dy1, ...) -> dx; attributes axis, split

constexpr int64_t kPartsMax = 1024;  // most inputs of a Concat, and most outputs of a Split

/// Sizes along the axis: of the outputs of a Split or ConcatGrad, or the inputs of a SplitGrad.
/// `whole` is the size before the split.
std::vector<int64_t> split_sizes(const Attributes& attributes, int64_t whole);

}  // namespace trainyard
