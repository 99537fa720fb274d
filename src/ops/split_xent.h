// src/ops/split_xent.h: the classification loss of scores whose classes lie in parts, one on each
// of the ranks that train a job together. Every rank has all rows of its classes.
//
//   z ── ClassSoftmax ── q ───────────────────────────────────────── SplitSoftmaxCrossEntropyLoss
//                     └─ statistics ── GatherRows (row_exchange.h) ──┘
//
// ClassSoftmax                      Inputs z [N, C], kClasses; labels [N], I32, kGathered.
//                                   Outputs statistics [N, 4] and q [N, C], kClasses.
// SplitSoftmaxCrossEntropyLoss      Inputs q; labels; statistics of all ranks [ranks N, 4],
//                                   kGathered. Outputs loss [1], of all rows and the same on every
//                                   rank, kOwn; prob [N, C], kClasses.
// SplitSoftmaxCrossEntropyLossGrad  (prob, labels, dloss [1]) -> dz [N, C]
//
// Attributes  classes: K; rank, of ranks: its classes are [rank C, (rank + 1) C), and those below K
//             count. Columns behind them are 0 in every output. label_smoothing, ignore_index and
//             class_weights of SoftmaxCrossEntropyLoss, of all K.
// Gradients   z, assigned. The loss hands ClassSoftmax the gradient of z in place of that of q, and
//             no other node may read q or prob but to look at them.
// Refuses     what SoftmaxCrossEntropyLoss refuses; C x ranks below K; a rank that is not one.
// Kernels     class_softmax, split_xent_forward, split_xent_backward (kernels/split_xent.h)
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

const Op* class_softmax_op();    // "ClassSoftmax"
const Op* split_xent_op();       // "SplitSoftmaxCrossEntropyLoss"
const Op* split_xent_grad_op();  // "SplitSoftmaxCrossEntropyLossGrad"

/// Columns that each of the ranks has of K classes.
constexpr int64_t classes_of_rank(int64_t classes, int64_t ranks) {
  return (classes + ranks - 1) / ranks;
}

}  // namespace trainyard
