// src/ops/adam_update.h: one step of Adam, in place. Two ops: AdamUpdate adds the weight decay to
// the gradient, AdamWUpdate shrinks the parameter.
// Inputs      p, updated; g, as p; learning_rate F32 [1]; step I64 [1], from 0; m and v, the
// moments,
//             as p, updated.
// Attributes  beta1, beta2, epsilon, weight_decay, rate_factor; defaults 0.9, 0.999, 1e-8, 0, 1.
//             rank, ranks: of a shard (shards.h), default 0 of 1.
// By rows     a last input, rows (shards.h): g has these rows alone, and no other is updated.
// Kernels     adam (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* adam_update_op();   // "AdamUpdate"
const Op* adamw_update_op();  // "AdamWUpdate"

}  // namespace trainyard
