// src/ops/sampled_xent.h: the classification loss over a sample of many classes, and the rows of a
// head that it takes (kernels/sampled_xent.h).
//
//   labels, step ── SampleClasses ──┬─ classes ── TakeRows of weight and bias ── Gemm ──┐ z
//                                   └─ position, log_expected ─────────────── SampledSoftmax...
//
// SampleClasses   Inputs labels [N], I32 in [0, K); step I64 [1]; counted [M], I32: the labels of
//                 all ranks' rows, kGathered; without it, labels are all (M = N); kept I32, an
//                 accumulator, and micro_step I64 [1]: both where the list grows over the
//                 micro-batches of a step, which share its draws.
//                 Outputs classes I32 [R], R = S + M micro_batches, each once, -1 where there are
//                 fewer; position I32 [N], -1 of a label that is ignored; log_expected [R]. Alike
//                 on all ranks but for position.
//                 Attributes classes: K; samples: S in [1, K / 2]; distribution: log_uniform (the
//                 default) or uniform; ignore_index (none); seed, stream: as Dropout's; dtype of
//                 log_expected, F32 by default; micro_batches of a step, 1 by default.
// TakeRows        Inputs table [K, ...]; index I32 [R], no row twice. Output [R, ...]: 0 of -1.
//                 No gradient of the table: whoever builds the graph differentiates by the output,
//                 and the updates take rows (shards.h).
// SampledSoftmaxCrossEntropyLoss
//                 Inputs z [N, R]; position [N]; log_expected [R]. Attributes samples: S.
//                 Outputs loss [1], the mean over the rows that have a position; prob [N, R].
// SampledSoftmaxCrossEntropyLossGrad
//                 (prob, position, dloss [1]) -> dz [N, R]. Attributes samples.
// Gradients       z, assigned.
// Kernels         sample_classes, take_rows, sampled_xent_forward, sampled_xent_backward
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sample_classes_op();     // "SampleClasses"
const Op* take_rows_op();          // "TakeRows"
const Op* sampled_xent_op();       // "SampledSoftmaxCrossEntropyLoss"
const Op* sampled_xent_grad_op();  // "SampledSoftmaxCrossEntropyLossGrad"

}  // namespace trainyard
