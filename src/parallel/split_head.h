// src/parallel/split_head.h: a model's head and the loss of its scores, split by class over the
// ranks that train it together (resources.shard: head).
//
//   x ── GatherRows ── Gemm ── ClassSoftmax ──┬── SplitSoftmaxCrossEntropyLoss ── loss
//   labels ──┘     weight, bias of this       └── GatherRows of 4 numbers a row ──┘
//                  rank's classes
//
// Each rank holds the N-th part of the head's weights, rounded up to whole classes, their gradients
// and the optimizer's state; and computes the scores of all ranks' rows for its classes. Gradients
// of the head are complete there, so that nothing is exchanged for them; that of x is summed over
// the ranks (src/ops/row_exchange.h).
//
// An embedding whose table the head multiplies with too looks up in the same part of it:
//
//   tokens ── GatherRows ── SplitGather ── ScatterRows ── the vectors of this rank's rows
//                   the table's rows for this rank's classes
//
// Each vector is of one rank and 0 from all others. The table's gradient by the lookup is that of
// the vectors of all ranks, gathered, and complete here as well.
#pragma once

#include "src/base/result.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct SplitModel {
  Model model;
  int64_t classes = 0;  // of all ranks; the output has this rank's, of the rows of all ranks
};

/// `model` as it was built, before it is differentiated; with a loss, or for evaluation. Refuses,
/// by resources.shard, a head that is no dense layer with weights of its own or of one embedding,
/// and a loss that is no softmax cross-entropy of labels.
Result<SplitModel> split_head(const Model& model, Rank rank);

}  // namespace trainyard
