// src/ops/accumulate_gradient.h: adds the gradient of a micro-batch to a sum, in place.
// Inputs      sum, updated; g, as sum; micro_step I64 [1]: the micro-batch, from 0; number 0
//             assigns.
// Attributes  share, the factor of g; default 1.
// Kernels     accumulate_gradient (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* accumulate_gradient_op();  // "AccumulateGradient"

}  // namespace trainyard
