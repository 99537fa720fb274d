// src/passes/fuse_pools.h: ReLU in front of a max pool or behind it becomes part of the pool, since
// the largest of what is above 0 is what is above 0 of the largest.
//
//   Relu, MaxPool or MaxPool, Relu                  -> MaxPool with relu
//   MaxPoolGrad, ReluGrad or ReluGrad, MaxPoolGrad  -> MaxPoolGrad, which gives nothing to a window
//                                                      that ReLU has set to 0
//
// In front of a pool ReLU has as many elements as the image, and its gradient keeps that image
// until backward. Runs behind fuse, which puts ReLU into normalization, and before recompute, which
// then finds less to compute again. A pool that is trained and keeps no winner is left as it is.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_pools(Graph& graph);

}  // namespace trainyard
