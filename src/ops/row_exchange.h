// src/ops/row_exchange.h: exchanges that gather rows from all ranks of a job, or distribute them
// again: conversions between spreads (src/graph/graph.h). Each exchange is one node, because the
// node that needs its result follows directly.
//
// GatherRows      Inputs x_0 .. x_n-1 [n_i, ...] of any type, kOwn or kClasses. Outputs y_i [ranks
//                 n_i, ...], kGathered: `factor` times x_i of all ranks, concatenated.
// ScatterRows     Inputs g_0 .. g_n-1 [ranks n_i, ...], F32 or F64, kSummand. Outputs y_i [n_i,
//                 ...], kOwn: this rank's rows of `factor` times the sum of g_i over the ranks,
//                 which a host adds in the order of the ranks.
// Attributes      bucket: as in src/ops/shards.h, except that the gradient node has the next
//                 number; ranks; factor: default 1 for GatherRows, `ranks` for ScatterRows; other
//                 than 1 only for floats.
// Gradients       each is the gradient of the other, assigned. The gradient of a kOwn tensor is
//                 that of the rank's own loss, the mean over its own rows. Other gradients are
//                 those of the mean over all rows, which are `ranks` times as many. Hence the
//                 factors differ by `ranks`.
// Kernels         the backend's communicator (src/runtime/communicator.h)
#pragma once

#include <string_view>

#include "src/graph/op.h"

namespace trainyard {

const Op* gather_rows_op();   // "GatherRows"
const Op* scatter_rows_op();  // "ScatterRows"

/// Returns `factor` of a GatherRows or ScatterRows node; 1 for any other type.
double row_factor(std::string_view op_type, const Attributes& attributes);

}  // namespace trainyard
