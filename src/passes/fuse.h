// src/passes/fuse.h: fuses several nodes into one that sweeps over memory once.
//
//   BatchNormalization, Relu                 -> BatchNormalizationRelu
//   BatchNormalization, Add, Relu            -> BatchNormalizationRelu with a residual
//   ReluGrad, BatchNormalizationGrad         -> BatchNormalizationReluGrad
//
// Nodes are only fused if nothing else reads the tensors between them. Softmax and its loss are a
// single op from the start.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse(Graph& graph);

}  // namespace trainyard
