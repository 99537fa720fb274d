// src/autodiff/differentiate.h: appends the backward pass to a graph.
#pragma once

#include <map>
#include <set>

#include "src/graph/graph.h"

namespace trainyard {

/// Appends nodes (Phase::kBackward) that compute d loss / d parameter for every parameter that
/// `loss` depends on, and returns the gradient tensor of each. `loss` has shape [1]. If a tensor
/// has several readers, Add sums their gradients in the order of the readers. Every gradient is
/// assigned. Parameters in `frozen` are constants: they get no gradient, and no node is added only
/// for them. A `seed` [1] multiplies the loss before it is differentiated. Activations in `leaves`
/// get a gradient as parameters do. Differentiation stops at them: the caller decides what to do
/// with their gradients.
std::map<TensorId, TensorId> differentiate(Graph& graph, TensorId loss,
                                           const std::set<TensorId>& frozen = {},
                                           TensorId seed = kNoTensor,
                                           const std::set<TensorId>& leaves = {});

}  // namespace trainyard
