// src/ops/accumulate_gradient.h: adds a micro-batch's share to a gradient, in place.
// Inputs      sum, updated; g, as sum; micro_step I64 [1], from 0: the first one assigns.
// Attributes  share; default 1.
// Kernels     accumulate_gradient (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* accumulate_gradient_op();  // "AccumulateGradient"

}  // namespace trainyard
