// src/ops/sgd_update.h: one step of stochastic gradient descent, in place.
// Inputs      p, updated; g, as p; learning_rate F32 [1]; v, as p, updated: only with momentum.
// Attributes  momentum, nesterov (0 or 1), weight_decay, default 0; rate_factor, default 1:
//             multiplies the learning rate.
//             rank, ranks: of a shard (shards.h), default 0 of 1.
// By rows     a last input, rows (shards.h): g has these rows alone, and no other is updated.
// Refuses     v without momentum and momentum without v.
// Kernels     sgd (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sgd_update_op();  // "SgdUpdate"

}  // namespace trainyard
