// src/passes/fuse_sums.h: fuses a residual sum with the normalization of it, and with a dropout
// before the sum.
//
//   Add, LayerNormalization      -> SkipNormalization, whose last output is the sum
//   LayerNormalizationGrad, Add  -> SkipNormalizationGrad, which adds the gradient of the sum from
//                                   its other readers
//
//   Add, BatchNormalizationReluGrad -> SkipBatchNormalizationReluGrad, which adds the gradients
//                                      from the two readers of the normalization's output
//
//   Dropout, SkipNormalization      -> SkipNormalization with a step
//   LayerNormalizationGrad or SkipNormalizationGrad, DropoutGrad
//                                   -> SkipNormalizationGrad with a step
//
// RMSNormalization is treated like LayerNormalization. Runs after recompute, which cuts graphs at
// the sums.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_sums(Graph& graph);

}  // namespace trainyard
