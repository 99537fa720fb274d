// src/ops/sampled_xent.h: the classification loss over a sample of the classes, and the lookup of
// the sampled rows of the head (kernels/sampled_xent.h).
//
//   labels, step ── SampleClasses ──┬─ classes ── TakeRows of weight and bias ── Gemm ──┐ z
//                                   └─ position, log_expected ─────────────── SampledSoftmax...
//
// SampleClasses   Inputs labels [N], I32 in [0, K); step I64 [1]; counted [M], I32: the labels of
//                 all ranks' rows, kGathered; without it `labels` are all (M = N); kept I32, an
//                 accumulator, and micro_step I64 [1]: both are given if the micro-batches of a
//                 step share one list and its draws; the list then grows.
//                 Outputs classes I32 [R], R = S + M micro_batches, each once, padded with -1;
//                 position I32 [N], the index of each label in classes, -1 for an ignored label;
//                 log_expected [R]. Except position, they are the same on all ranks.
//                 Attributes classes: K; samples: S in [1, K / 2]; distribution: log_uniform (the
//                 default) or uniform; ignore_index (none); seed, stream: as Dropout's; dtype of
//                 log_expected, F32 by default; micro_batches: their number in a step, 1 by
//                 default.
// TakeRows        Inputs table [K, ...]; index I32 [R], no row twice. Output [R, ...]: 0 for -1.
//                 The table has no gradient: the graph's builder differentiates with respect to the
//                 output, and the updates take the gradient of these rows (shards.h).
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
