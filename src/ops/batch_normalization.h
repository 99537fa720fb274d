// src/ops/batch_normalization.h: ONNX BatchNormalization; [N, C, H, W] or [N, C].
// Inputs     x; scale [C]; b [C]; running_mean [C] and running_var [C], state that a training run
//            updates in place.
// Outputs    y, as x; saved_mean [C] and saved_inv_std [C] of the batch, which only training writes
//            (leave them out otherwise).
// Attributes training_mode: 1 normalizes by the batch, 0 by the running values; epsilon 1e-5;
//            momentum 0.9, the weight of the old running value (PyTorch's momentum is 1 minus
//            this). The running variance averages the unbiased variance of the batch, as in
//            PyTorch.

// Saves      x, scale, saved_mean, saved_inv_std.
// Gradients  x, scale, b, assigned; in training_mode 1 only.
// Refuses    other ranks; vectors that are not [C]; in training fewer than 2 values per channel;
//            epsilon not in (0, 1]; momentum not in [0, 1].
// Kernels    batch_norm_training, _inference, _backward (kernels/batch_norm.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* batch_normalization_op();  // "BatchNormalization"
/// "BatchNormalizationGrad": (x, scale, saved_mean, saved_inv_std, dy) -> (dx, dscale, db)
const Op* batch_normalization_grad_op();

}  // namespace trainyard
