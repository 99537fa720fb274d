// src/passes/fuse_convolutions.h: fuses a convolution with a bias and the ReLU after it.
//
//   Conv, Relu          -> ConvRelu
//   ReluGrad, ConvGrad  -> ReluConvGrad, whose last output is the gradient between the two
//
// Runs after recompute, which cuts graphs between the nodes that this pass fuses.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_convolutions(Graph& graph);

}  // namespace trainyard
