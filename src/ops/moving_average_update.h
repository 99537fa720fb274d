// src/ops/moving_average_update.h: updates the exponential moving average of a parameter in place.
// Inputs      average, updated; p, as average; step I64 [1], from 0: at step 0 the average becomes
//             p.
// Attributes  decay, the weight of the old average; default 0.
// Kernels     moving_average (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* moving_average_update_op();  // "MovingAverageUpdate"

}  // namespace trainyard
