// src/passes/fuse_pools.h: makes a ReLU before a max pool, or after it, part of the pool. ReLU is
// monotone, so both orders give the same result.
//
//   Relu, MaxPool or MaxPool, Relu                  -> MaxPool with relu
//   MaxPoolGrad, ReluGrad or ReluGrad, MaxPoolGrad  -> MaxPoolGrad, which gives nothing to a window
//                                                      that ReLU has set to 0
//
// A ReLU before a pool has as many elements as the image, and its gradient keeps that image until
// backward. The pass runs after fuse, which combines ReLU with normalization, and before recompute,
// which then has less to recompute. A pool that is trained without keeping winners stays unchanged.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_pools(Graph& graph);

}  // namespace trainyard
