// src/parallel/sparse_lookup.h: embeddings with a gradient only for the rows that a batch reads
// (embedding: {sparse: true}), like PyTorch's nn.Embedding(sparse=True).
//
//   indices ── DistinctRows ─┬─ rows ── TakeRows of the table ── Gather ── y
//                            └─ position ─────────────────────────┘
//
// Only the training program has these nodes; all other programs read the table directly. Each rank
// gathers the rows of all ranks' indices, so that the gradient of these rows is all-reduced like
// any other.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"
#include "src/parallel/gathered_rows.h"

namespace trainyard {

/// Converts the sparse embeddings of `model`, which must not be differentiated yet, and adds their
/// gathered rows to `tables`. Lookups in frozen tables stay unchanged. Refuses, naming the layer's
/// field, a table that another node reads too, and settings of the recipe that cannot work with
/// updates of single rows.
Status gather_lookups(Model& model, const Recipe& recipe, const std::set<TensorId>& frozen,
                      Rank rank, GatheredTables& tables);

/// Error: FIELD_CONFLICT if the recipe cannot work with a lookup that updates single rows.
Status check_lookup(const Lookup& lookup, const Recipe& recipe);
/// Returns the node named `name`, or kNoNode.
NodeId find_node(const Graph& graph, const std::string& name);

}  // namespace trainyard
