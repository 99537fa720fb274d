// src/passes/fuse_convolutions.h: a convolution with a bias and the ReLU behind it become one node.
//
//   Conv, Relu          -> ConvRelu
//   ReluGrad, ConvGrad  -> ReluConvGrad, whose last output is the gradient between the two
//
// Runs behind recompute, which cuts a graph between the nodes that this one joins.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_convolutions(Graph& graph);

}  // namespace trainyard
