// src/ops/head_loss.h: a model's head, the classification loss of its scores, and the gradients of
// both in one node, known as fused linear cross-entropy: the scores and their gradient, for a
// language model the largest tensors by far, exist for some rows at a time.
//
//   z = x w' + b,  loss = SoftmaxCrossEntropyLoss(z, labels),  dx, dw, db by dz = dloss d(loss)/dz
//
// No layer becomes this op; src/passes/fuse_head.cc puts it into the graphs of GPUs.
//
// Inputs      x [N, F]; w [K, F]; labels [N], I32 in [0, K); dloss [1]; b [K], optional.
// Outputs     loss [1]; dx [N, F]; dw [K, F]; db [K]: what nobody needs is left out.
// Attributes  transB and tf32 of Gemm; label_smoothing, ignore_index and class_weights of
//             SoftmaxCrossEntropyLoss.
// Gradients   none: it computes them. All are assigned.
// Refuses     what Gemm and SoftmaxCrossEntropyLoss refuse.
// Kernels     CUDA: products, and softmax_xent_rows (kernels/softmax_xent.h). On the host the
//             kernels of the ops that it stands for (src/runtime/common/head_loss_kernel.h).
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* head_loss_op();  // "GemmSoftmaxCrossEntropyLoss"

}  // namespace trainyard
