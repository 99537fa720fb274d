// src/parallel/sparse_lookup.h: embeddings whose gradient is that of the rows which a batch reads
// (embedding: {sparse: true}), as PyTorch's nn.Embedding(sparse=True).
//
//   indices ── DistinctRows ─┬─ rows ── TakeRows of the table ── Gather ── y
//                            └─ position ─────────────────────────┘
//
// Only the training program has them: all others look up in the table. Of several ranks each takes
// the rows of all ranks' indices, so that one gradient of these rows is exchanged as any other.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"
#include "src/parallel/taken_rows.h"

namespace trainyard {

/// Puts them into `model`, before it is differentiated, and what was taken into `tables`. Lookups
/// in frozen tables stay as they are. Refuses, by the layer's field, a table that something else
/// reads too, and what of the recipe does not go with updates of single rows.
Status take_lookups(Model& model, const Recipe& recipe, const std::set<TensorId>& frozen, Rank rank,
                    TakenTables& tables);

/// Whether the recipe goes with a lookup that updates single rows. FIELD_CONFLICT.
Status check_lookup(const Lookup& lookup, const Recipe& recipe);
/// The node of this name, or kNoNode.
NodeId find_node(const Graph& graph, const std::string& name);

}  // namespace trainyard
