// src/ops/flatten.h: reshapes a tensor to a matrix [d0 * .. , d_axis * ..]. Elements are in logical
// order: c, h, w for an image of any layout, so that weights do not depend on the layout.
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
