// src/ops/rmsprop_update.h: one step of RMSprop, in place.
// Inputs      p, updated; g, as p; learning_rate F32 [1]; square, as p, updated; grad_avg, as p,
//             updated: only when centered; momentum_buffer, as p, updated: only with momentum.
// Attributes  alpha, epsilon, momentum, weight_decay, rate_factor; defaults 0.99, 1e-8, 0, 0, 1.
//             rank, ranks: of a shard (shards.h), default 0 of 1.
// By rows     a last input, rows (shards.h): g has these rows alone, and no other is updated.
// Refuses     momentum without its buffer and the buffer without momentum.
// Kernels     rmsprop (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* rmsprop_update_op();  // "RmspropUpdate"

}  // namespace trainyard
