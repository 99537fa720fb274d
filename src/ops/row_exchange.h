// src/ops/row_exchange.h: what joins the rows of the ranks that train a job together, and parts
// them again: conversions between spreads (src/graph/graph.h). Each is one node: what waits for
// it stands right behind it.
//
// GatherRows      Inputs x_0 .. x_n-1 [n_i, ...] of any type, kOwn or kClasses. Outputs y_i
//                 [ranks n_i, ...], kGathered: `factor` x_i of all ranks, one behind the other.
// ScatterRows     Inputs g_0 .. g_n-1 [ranks n_i, ...], F32 or F64, kSummand. Outputs y_i
//                 [n_i, ...], kOwn: this rank's rows of `factor` sum over the ranks of g_i, summed
//                 in their order on a host.
// Attributes      bucket: as src/ops/shards.h has it, but that the gradient of one of these has the
//                 number behind its own; ranks; factor: by default 1 of GatherRows, and `ranks` of
//                 ScatterRows; only floats have another than 1.
// Gradients       each is the other's, assigned. Of what is kOwn, gradients are those of a rank's
//                 loss, the mean over its own rows; of all else, those of the mean over all rows,
//                 of which there are `ranks` times more: so the factors differ by `ranks`.
// Kernels         the backend's communicator (src/runtime/communicator.h)
#pragma once

#include <string_view>

#include "src/graph/op.h"

namespace trainyard {

const Op* gather_rows_op();   // "GatherRows"
const Op* scatter_rows_op();  // "ScatterRows"

/// `factor` of a node of one of the two; 1 of any other type.
double row_factor(std::string_view op_type, const Attributes& attributes);

}  // namespace trainyard
