// src/passes/fuse_head.h: fuses a model's last layer, the loss of its scores and the gradients of
// both into one node (src/ops/head_loss.h), so that the scores of a whole batch never exist.
//
//   Gemm, SoftmaxCrossEntropyLoss, SoftmaxCrossEntropyLossGrad, GemmGrad
//     -> GemmSoftmaxCrossEntropyLoss
//
// The layer may have a bias, and may share its weights with an embedding. The loss may have
// smoothing, class weights and an ignored class. Reshapes between the nodes, to positions and back,
// are removed. Nodes are only fused if nothing else in the step reads scores, probabilities or
// loss: the scores of a classifier are read for its accuracy, those of a language model are not. A
// loss with shares of classes as targets, and KullbackLeiblerDivergence, are not fused. On a CPU
// the pass fuses only a layer that is not trained: its kernel computes only the rows that count
// (kernels/head_loss.h), and rounds as an unfused layer of another number of rows would. Results of
// other models keep their bits on a CPU.
#pragma once

#include "src/graph/graph.h"
#include "src/passes/processor.h"

namespace trainyard {

void fuse_head(Graph& graph, Processor processor);

}  // namespace trainyard
