// src/autodiff/differentiate.h: appends the backward pass of a graph.
#pragma once

#include <map>
#include <set>

#include "src/graph/graph.h"

namespace trainyard {

/// Appends nodes (Phase::kBackward) that compute d loss / d parameter for every parameter that
/// `loss` depends on, and returns the gradient tensor of each. `loss` has shape [1]. Gradients of a
/// tensor with several readers are summed by Add in the order of its readers. Every gradient is
/// assigned. Parameters in `frozen` are constants: they get no gradient, and nothing is computed
/// only for them. With a `seed` [1] all gradients are those of the loss times what it holds.
/// Activations among `leaves` get a gradient as parameters do: what stands before them is not
/// differentiated by them, and the graph's builder does with their gradients what is right.
std::map<TensorId, TensorId> differentiate(Graph& graph, TensorId loss,
                                           const std::set<TensorId>& frozen = {},
                                           TensorId seed = kNoTensor,
                                           const std::set<TensorId>& leaves = {});

}  // namespace trainyard
