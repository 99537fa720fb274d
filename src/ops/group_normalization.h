// src/ops/group_normalization.h: normalizes each group of channels of each sample separately: ONNX
// GroupNormalization (opset 21), and InstanceNormalization, which has one group per channel.
// Inputs     x [N, C, ...], scale [C], b [C].
// Outputs    y as x; mean and inv_std [N, G], for backward (may be left out together).
// Attributes epsilon 1e-5; num_groups (GroupNormalization, required).
// Saves      x, mean, inv_std.
// Gradients  x, scale, b, assigned: one node.
// Refuses    rank below 3 (InstanceNormalization) or 2, num_groups that does not divide C, groups
//            of a single value, scale and b that are not [C].
// Kernels    group_norm_forward, group_norm_backward (kernels/group_norm.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* group_normalization_op();     // "GroupNormalization"
const Op* instance_normalization_op();  // "InstanceNormalization"
/// "GroupNormalizationGrad", of both: (x, scale, mean, inv_std, dy) -> (dx, dscale, db)
const Op* group_normalization_grad_op();

}  // namespace trainyard
