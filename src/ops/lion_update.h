// src/ops/lion_update.h: one step of Lion, in place.
// Inputs      p, updated; g, as p; learning_rate F32 [1]; m, the momentum, as p, updated.
// Attributes  beta1, beta2, weight_decay, rate_factor; defaults 0.9, 0.99, 0, 1.
//             rank, ranks: of a shard (shards.h), default 0 of 1.
// By rows     a last input, rows (shards.h): g has these rows alone, and no other is updated.
// Kernels     lion (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* lion_update_op();  // "LionUpdate"

}  // namespace trainyard
