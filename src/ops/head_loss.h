// src/ops/head_loss.h: a model's last layer, the classification loss of its scores, and the
// gradients of both in one node, known as fused linear cross-entropy. Scores and their gradient, by
// far the largest tensors of a language model, only exist for some rows at a time.
//
//   z = x w' + b,  loss = SoftmaxCrossEntropyLoss(z, labels),  dx, dw, db by dz = dloss d(loss)/dz
//
// No layer creates this op; src/passes/fuse_head.cc inserts it into graphs for GPUs, and for a head
// that is not trained into graphs for CPUs.
//
// Inputs      x [N, F]; w [K, F]; labels [N], I32 in [0, K), or below 0 in rows that do not count;
//             dloss [1]; b [K], optional.
// Outputs     loss [1]; dx [N, F]; dw [K, F]; db [K]; unneeded gradients are left out.
// Attributes  transB and tf32 of Gemm; label_smoothing, ignore_index and class_weights of
//             SoftmaxCrossEntropyLoss.
// Gradients   the op itself computes them; all are assigned.
// Refuses     the same inputs as Gemm and SoftmaxCrossEntropyLoss.
// Kernels     CUDA: products, and softmax_xent_rows (kernels/softmax_xent.h). CPU: HeadLoss
//             (kernels/head_loss.h), or, with dw or db, as the reference: the kernels of the ops
//             that it replaces (src/runtime/common/head_loss_kernel.h).
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* head_loss_op();  // "GemmSoftmaxCrossEntropyLoss"

}  // namespace trainyard
