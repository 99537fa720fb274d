// src/ops/reorder.h: a rank-4 activation in the other physical order; the values do not change.
// Inputs     x [N, C, H, W].    Output  y, as x; each in its tensor's own layout.
// Gradients  none: the layout pass inserts it after differentiation.
// Kernels    nchw_to_nhwc, nhwc_to_nchw (kernels/layout.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* reorder_op();  // "Reorder"

}  // namespace trainyard
