// src/parallel/taken_rows.h: tables of a training program of which a batch reads some rows. These
// were taken (TakeRows, src/ops/sampled_xent.h) and are what the graph is differentiated by; the
// table's gradient is theirs, and its update is told which rows they are (updated_rows() in
// src/graph/op.h).
//
// With micro-batches the list of rows grows from one to the next, in memory that stays: a row keeps
// its place in the list, so that gradients of the same list are summed, and the update reads it
// when all are there.
#pragma once

#include <map>
#include <set>
#include <string>

#include "src/graph/graph.h"
#include "src/optim/optimizer.h"

namespace trainyard {

struct TakenRows {
  TensorId taken = kNoTensor;  // the rows that the batch reads
  TensorId rows = kNoTensor;   // which they are, for the update
};
using TakenTables = std::map<TensorId, TakenRows>;  // by parameter

/// Numbers of exchanges (src/ops/shards.h) of labels and indices, which no others come to: 0 of
/// labels, 1 and more of lookups.
int64_t rows_exchange(int64_t index);

/// What a list of rows grows in over the micro-batches of a step.
struct KeptRows {
  TensorId kept = kNoTensor, micro_step = kNoTensor;  // none: a step is one batch
};
/// The list called `name` of `size` rows, in an accumulator of `graph`.
KeptRows add_kept_rows(Graph& graph, const std::string& name, int64_t size, int64_t micro_batches);
/// The input of a training program that numbers the micro-batches of a step, made on first use.
TensorId micro_step_input(Graph& graph);

/// Gradients by parameter; of tables, those of the rows that were taken, which their rules name
/// from now on.
std::map<TensorId, TensorId> differentiate_taken(Graph& graph, TensorId loss,
                                                 std::set<TensorId> frozen, TensorId loss_scale,
                                                 const TakenTables& tables,
                                                 std::map<TensorId, ParameterRule>& rules);

}  // namespace trainyard
