// src/passes/fuse_sums.h: a residual sum and the normalization beside it become one node, with a
// dropout in front of the sum.
//
//   Add, LayerNormalization      -> SkipNormalization, whose last output is the sum
//   LayerNormalizationGrad, Add  -> SkipNormalizationGrad, which adds what reaches the sum on its
//                                   other way
//
//   Add, BatchNormalizationReluGrad -> SkipBatchNormalizationReluGrad, which adds what reaches the
//                                      normalization's result on its two ways
//
//   Dropout, SkipNormalization      -> SkipNormalization with a step
//   LayerNormalizationGrad or SkipNormalizationGrad, DropoutGrad
//                                   -> SkipNormalizationGrad with a step
//
// RMSNormalization as LayerNormalization. Runs behind recompute, which cuts a graph at the sums.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_sums(Graph& graph);

}  // namespace trainyard
