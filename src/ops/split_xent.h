// src/ops/split_xent.h: the classification loss of scores whose classes are distributed over the
// ranks that train a job together. Every rank has the scores of all rows for its classes.
//
//   z ── ClassSoftmax ── q ───────────────────────────────────────── SplitSoftmaxCrossEntropyLoss
//                     └─ statistics ── GatherRows (row_exchange.h) ──┘
//
// ClassSoftmax                      Inputs z [N, C], kClasses; labels [N], I32, kGathered.
//                                   Outputs statistics [N, 4] and q [N, C], kClasses.
// SplitSoftmaxCrossEntropyLoss      Inputs q; labels; statistics of all ranks [ranks N, 4],
//                                   kGathered. Outputs loss [1], over all rows, the same on every
//                                   rank, kOwn; prob [N, C], kClasses.
// SplitSoftmaxCrossEntropyLossGrad  (prob, labels, dloss [1]) -> dz [N, C]
//
// Attributes  classes: K; rank, of ranks: its classes are those below K in [rank C, (rank + 1) C).
//             Columns of no class are 0 in every output. label_smoothing, ignore_index and
//             class_weights as SoftmaxCrossEntropyLoss, for all K classes.
// Gradients   z, assigned. The loss passes ClassSoftmax the gradient of z instead of q's, so no
//             other differentiated node may read q or prob.
// Refuses     the same as SoftmaxCrossEntropyLoss; C x ranks below K; a rank that is not in [0,
//             ranks).
// Kernels     class_softmax, split_xent_forward, split_xent_backward (kernels/split_xent.h)
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

const Op* class_softmax_op();    // "ClassSoftmax"
const Op* split_xent_op();       // "SplitSoftmaxCrossEntropyLoss"
const Op* split_xent_grad_op();  // "SplitSoftmaxCrossEntropyLossGrad"

/// Returns the number of columns that each rank has if K classes are distributed over the ranks.
constexpr int64_t classes_of_rank(int64_t classes, int64_t ranks) {
  return (classes + ranks - 1) / ranks;
}

}  // namespace trainyard
