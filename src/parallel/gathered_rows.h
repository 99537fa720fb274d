// src/parallel/gathered_rows.h: tables of a training program of which a batch reads only some rows.
// The rows are gathered (TakeRows, src/ops/sampled_xent.h), and the graph is differentiated with
// respect to them. The table's gradient has only these rows, and its update gets the list of their
// indices (updated_rows() in src/graph/op.h).
//
// With micro-batches the list of rows grows from one micro-batch to the next, in an accumulator. A
// row keeps its position in the list, so that gradients by position can be summed; the update reads
// the list after the last micro-batch.
#pragma once

#include <map>
#include <set>
#include <string>

#include "src/graph/graph.h"
#include "src/optim/optimizer.h"

namespace trainyard {

struct GatheredRows {
  TensorId gathered = kNoTensor;  // the gathered rows, which the batch reads
  TensorId rows = kNoTensor;      // the indices of these rows, for the update
};
using GatheredTables = std::map<TensorId, GatheredRows>;  // by parameter

/// Returns the exchange number (src/ops/shards.h) for labels (index 0) or for the indices of
/// lookups (index 1 and up). No other exchange uses these numbers.
int64_t rows_exchange(int64_t index);

/// The tensors in which a list of row indices grows over the micro-batches of a step.
struct KeptRows {
  TensorId kept = kNoTensor, micro_step = kNoTensor;  // kNoTensor if a step is one batch
};
/// Adds a list called `name` for `size` rows to `graph`, as an accumulator. Empty if micro_batches
/// is 1.
KeptRows add_kept_rows(Graph& graph, const std::string& name, int64_t size, int64_t micro_batches);
/// Returns the input of a training program that is the index of the micro-batch within its step;
/// created on first use.
TensorId micro_step_input(Graph& graph);

/// Returns the gradients by parameter. The gradient of a table in `tables` is that of its gathered
/// rows; its entry in `rules` then refers to their indices.
std::map<TensorId, TensorId> differentiate_gathered(Graph& graph, TensorId loss,
                                                    std::set<TensorId> frozen, TensorId loss_scale,
                                                    const GatheredTables& tables,
                                                    std::map<TensorId, ParameterRule>& rules);

}  // namespace trainyard
