// src/ops/reorder.h: converts a rank-4 activation between row-major and channels-last order.
// Inputs     x [N, C, H, W].    Output  y, as x; x and y each have the layout of their tensor.
// Gradients  none: the layout pass inserts it after differentiation.
// Kernels    nchw_to_nhwc, nhwc_to_nchw (kernels/layout.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* reorder_op();  // "Reorder"

}  // namespace trainyard
