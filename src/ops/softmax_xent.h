// src/ops/softmax_xent.h: classification losses, as the weighted mean over the batch.
//
//   SoftmaxCrossEntropyLoss    cross-entropy against the labels
//   KullbackLeiblerDivergence  from the predicted to the smoothed labels' distribution: the
//                              cross-entropy minus the labels' entropy; the same gradient
//
// Inputs      logits [N, K]; labels [N], I32 in [0, K), or below 0 in rows that do not count; or
// the
//             shares of the classes in each row, [N, K] of the logits' type, at least 0 with the
//             sum 1. Labels have no gradient.
// Outputs     loss [1]; prob [N, K].
// Attributes  label_smoothing (0), which also applies to shares; ignore_index (none): rows with
//             that label do not count; SoftmaxCrossEntropyLoss: class_weights, K numbers (all 1).
// Saves       prob, so that backward needs neither logits nor exp.
// Gradients   logits, assigned.
// Refuses     rank other than 2; K < 2; labels of another type; smoothing outside [0, 1), or
//             outside (0, 1) for the divergence from labels; class_weights that are negative, all 0
//             or not K; an ignore_index that is no label, or together with shares.
// Kernels     softmax_xent_forward, softmax_xent_backward (kernels/softmax_xent.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

class OpChecks;  // shape_helpers.h

const Op* softmax_xent_op();   // "SoftmaxCrossEntropyLoss"
const Op* kl_divergence_op();  // "KullbackLeiblerDivergence"
// "SoftmaxCrossEntropyLossGrad", the gradient of both: (prob, labels, dloss) -> dlogits
const Op* softmax_xent_grad_op();

/// Refuses a label_smoothing, an ignore_index or class_weights that do not fit `classes` classes.
void check_class_attributes(OpChecks& check, const Attributes& attributes, int64_t classes);

}  // namespace trainyard
