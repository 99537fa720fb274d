// src/runtime/common/resampling.h: computes the lists (kernels/resample.h) of Pad, Resize and their
// gradients from a node, for all backends.
#pragma once

#include "kernels/resample.h"
#include "src/graph/graph.h"

namespace trainyard {

kernels::ResampleParams pad_params(const Graph& g, const Node& n);
kernels::ResampleParams pad_grad_params(const Graph& g, const Node& n);
kernels::ResampleParams resize_params(const Graph& g, const Node& n);
kernels::ResampleParams resize_grad_params(const Graph& g, const Node& n);

}  // namespace trainyard
