// src/passes/fuse.h: several nodes become one that sweeps over memory once.
//
//   BatchNormalization, Relu                 -> BatchNormalizationRelu
//   BatchNormalization, Add, Relu            -> BatchNormalizationRelu with a residual
//   ReluGrad, BatchNormalizationGrad         -> BatchNormalizationReluGrad
//
// Only where nobody else reads what lies between. Softmax and its loss are one op from the start.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse(Graph& graph);

}  // namespace trainyard
