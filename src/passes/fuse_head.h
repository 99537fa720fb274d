// src/passes/fuse_head.h: a head, the loss of its scores and their gradients become one node
// (src/ops/head_loss.h), so that a plan need not hold the scores of a whole batch.
//
//   Gemm, SoftmaxCrossEntropyLoss, SoftmaxCrossEntropyLossGrad, GemmGrad
//     -> GemmSoftmaxCrossEntropyLoss
//
// With or without a bias, smoothing, weights of classes and an ignored class; the weights may be an
// embedding's. Reshapes between them, to positions and back, fall away. Only where nobody else
// reads scores, probabilities or loss within the step: a classifier's scores are read back for its
// accuracy, a language model's are not. Targets that are shares of classes, and
// KullbackLeiblerDivergence, stay as they are. For a GPU's graphs alone: a CPU keeps its bits.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_head(Graph& graph);

}  // namespace trainyard
