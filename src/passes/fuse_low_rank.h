// src/passes/fuse_low_rank.h: fuses the sums of low-rank additions (src/models/lora.h) with the
// products before them, so that no pass over memory only adds.
//
//   Gemm(x, w, b) -> p;  Gemm(Gemm(x or its dropout, a), b) -> q;  Add(p, q)   ->   q as GemmAdd
//   onto p GemmGrad -> dx1, GemmGrad -> dx2, Add(dx1, dx2)        ->   the later one as GemmGradAdd
//   onto dx1
//
// The first form needs a q that is a product of a product. In the second, both gradients are those
// of layers with one input, as the layer and its low-rank addition are. The pass is for CPUs: on a
// GPU the other fusions of the layer would be lost.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_low_rank(Graph& graph);

}  // namespace trainyard
