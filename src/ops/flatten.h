// src/ops/flatten.h: a tensor as a matrix, [d0 * .. , d_axis * ..], elements in logical order: an
// image becomes c, h, w whatever its layout, so that weights mean the same everywhere.
// Inputs      x, any rank.    Output  y, rank 2.
// Attributes  axis: default 1, in -rank..rank.
// Gradients   x, assigned.
// Kernels     nhwc_to_nchw and back (kernels/layout.h), or a copy
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* flatten_op();       // "Flatten"
const Op* flatten_grad_op();  // "FlattenGrad": dy -> dx; attribute shape: that of x

}  // namespace trainyard
