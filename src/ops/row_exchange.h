// src/ops/row_exchange.h: what joins the rows of the ranks that train a job together, and parts
// them again: conversions between spreads (src/graph/graph.h). Each is one node: what waits for
// it stands right behind it.
//
// GatherRows      Inputs x_0 .. x_n-1 [n_i, ...] of any type, kOwn or kClasses. Outputs y_i
//                 [ranks n_i, ...], kGathered: x_i of all ranks, one behind the other.
// ScatterRows     Inputs g_0 .. g_n-1 [ranks n_i, ...], F32 or F64, kSummand. Outputs y_i
//                 [n_i, ...], kOwn: this rank's rows of `ranks` sum over the ranks of g_i, summed
//                 in their order on a host. It is the gradient of GatherRows: a rank's loss is the
//                 mean over its own rows, of which there are `ranks` times fewer than of all.
// Attributes      bucket: as src/ops/shards.h has it, but that the gradient of a GatherRows has the
//                 number behind its own; ranks.
// Gradients       of GatherRows, where its output leads to a kSummand: assigned.
// Kernels         the backend's communicator (src/runtime/communicator.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gather_rows_op();   // "GatherRows"
const Op* scatter_rows_op();  // "ScatterRows"

}  // namespace trainyard
