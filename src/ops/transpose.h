// src/ops/transpose.h: permutes the axes of a tensor.
// Inputs      x.    Output  y, axis i of which is axis perm[i] of x.
// Attributes  perm; by default it reverses the axes, as in ONNX.
// Saves       nothing.
// Gradients   x, assigned: a Transpose by the inverse permutation.
// Refuses     a perm that is no permutation of the axes.
// Kernels     copy (kernels/movement.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* transpose_op();  // "Transpose"

/// Returns the attribute perm, or its default.
std::vector<int64_t> transpose_perm(const Attributes& attributes, int64_t rank);

}  // namespace trainyard
