// src/parallel/split_head.h: a model's head and the loss of its scores, split by class over the
// ranks that train it together (resources.shard: head).
//
//   x ── GatherRows ── Gemm ── ClassSoftmax ──┬── SplitSoftmaxCrossEntropyLoss ── loss
//   labels ──┘     weight, bias of this       └── GatherRows of 4 numbers a row ──┘
//                  rank's classes
//
// Each rank stores 1/N of the head's classes, rounded up: their weights, gradients and optimizer
// state. It computes the scores of all ranks' rows for its classes. The head's gradients are
// complete on their rank, so they are not exchanged; the gradient of x is summed over the ranks
// (src/ops/row_exchange.h).
//
// An embedding that shares the head's table reads the same shard of it:
//
//   tokens ── GatherRows ── SplitGather ── ScatterRows ── the vectors of this rank's rows
//                   the table's rows for this rank's classes
//
// Each vector comes from one rank; the other ranks contribute 0. For the lookup's part of the
// table's gradient, the gradients of the vectors of all ranks are gathered, so this part is
// complete as well.
#pragma once

#include "src/base/result.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct SplitModel {
  Model model;
  // The number of classes of all ranks. `model` computes the scores of this rank's classes, for the
  // rows of all ranks.
  int64_t classes = 0;
};

/// `model` must not be differentiated yet; it has a loss, or is built to evaluate. Refuses, naming
/// resources.shard, a head that is not a dense layer (one embedding may share its weights, nothing
/// else), and a loss that is not the softmax cross-entropy of labels.
Result<SplitModel> split_head(const Model& model, Rank rank);

}  // namespace trainyard
