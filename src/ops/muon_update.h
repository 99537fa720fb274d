// src/ops/muon_update.h: one step of Muon, in place: momentum, made orthogonal by Newton-Schulz.
// Inputs      p [A, B], updated; g, as p; learning_rate F32 [1]; m, the momentum, as p, updated.
// Attributes  momentum, nesterov (0 or 1), weight_decay, iterations, match_adamw (0 or 1),
//             rate_factor; defaults 0.95, 1, 0, 5, 0, 1.
// Refuses     ranks other than 2.
// Kernels     muon (kernels/optimizer.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* muon_update_op();  // "MuonUpdate"

}  // namespace trainyard
