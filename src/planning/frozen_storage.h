// src/planning/frozen_storage.h: how parameters that are not trained are stored
// (recipe.frozen_storage).
#pragma once

#include <map>
#include <set>

#include "src/graph/graph.h"
#include "src/job/recipe.h"

namespace trainyard {

/// Returns the parameters among `frozen` that are stored in 16 bits. With `auto` these are the ones
/// that begin with 16-bit numbers of the file of initial weights (InitialWeights::tensors), so that
/// no value is rounded. A rank's part of a parameter is never stored in 16 bits.
std::map<TensorId, Storage> find_frozen_storage(const Recipe& recipe, const Graph& graph,
                                                const std::set<TensorId>& frozen);

}  // namespace trainyard
