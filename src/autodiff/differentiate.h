// src/autodiff/differentiate.h: appends the backward pass of a graph.
#pragma once

#include <map>

#include "src/graph/graph.h"

namespace trainyard {

/// Appends nodes (Phase::kBackward) that compute d loss / d parameter for every parameter that
/// `loss` depends on, and returns the gradient tensor of each. `loss` has shape [1]. Gradients of a
/// tensor with several readers are summed by Add in the order of its readers. Every gradient is
/// assigned.
std::map<TensorId, TensorId> differentiate(Graph& graph, TensorId loss);

}  // namespace trainyard
