// src/train/sparse_lookup.h: embeddings whose gradient is that of the rows which a batch reads
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
#include "src/models/model_spec.h"
#include "src/train/programs.h"
#include "src/train/taken_rows.h"

namespace trainyard {

/// Puts them into `model`, before it is differentiated, and what was taken into `tables`. Lookups
/// in frozen tables stay as they are. Refuses, by the layer's field, a table that something else
/// reads too, and what of the recipe does not go with updates of single rows.
Status take_lookups(Model& model, const Recipe& recipe, const std::set<TensorId>& frozen, Rank rank,
                    TakenTables& tables);

/// A sentence for each table whose rows take so much of what a step moves that `sparse: true` would
/// save most of it.
void warn_of_whole_tables(const RunPrograms& programs, const Recipe& recipe, int64_t ranks,
                          std::vector<std::string>& warnings);

}  // namespace trainyard
