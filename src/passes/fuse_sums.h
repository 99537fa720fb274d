// src/passes/fuse_sums.h: a residual sum and the normalisation beside it become one node, with a
// dropout in front of the sum.
//
//   Add, LayerNormalization      -> SkipLayerNormalization, whose last output is the sum
//   LayerNormalizationGrad, Add  -> SkipLayerNormalizationGrad, which adds what reaches the sum on
//                                   its other way
//
//   Add, BatchNormalizationReluGrad -> SkipBatchNormalizationReluGrad, which adds what reaches the
//                                      normalisation's result on its two ways
//
//   Dropout, SkipLayerNormalization      -> DropoutSkipLayerNormalization
//   SkipLayerNormalizationGrad, or without Skip, DropoutGrad
//                                        -> DropoutSkipLayerNormalizationGrad
//
// RMSNormalization as LayerNormalization. Runs behind recompute, which cuts a graph at the sums.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_sums(Graph& graph);

}  // namespace trainyard
