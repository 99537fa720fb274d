// src/ops/softmax_xent.h: classification losses, mean over the batch by weight.
//
//   SoftmaxCrossEntropyLoss    cross-entropy against the labels
//   KullbackLeiblerDivergence  of the smoothed labels from what the model says: their
//                              cross-entropy, less the entropy of the labels; the same gradient
//
// Inputs      logits [N, K]; labels [N], I32 in [0, K), or the shares of the classes in each row,
//             [N, K] of the logits' type, 0 or more with the sum 1. No gradient.
// Outputs     loss [1]; prob [N, K].
// Attributes  label_smoothing (0), of shares too; ignore_index (none): rows with that label do not
//             count;
//             SoftmaxCrossEntropyLoss: class_weights, K numbers (all 1).
// Saves       prob, so that backward needs neither logits nor exp.
// Gradients   logits, assigned.
// Refuses     rank other than 2; K < 2; labels of another type; smoothing outside [0, 1) (of the
//             divergence from labels: outside (0, 1)); class_weights that are negative, all 0 or
//             not K; an ignore_index that is no label, or beside shares.
// Kernels     softmax_xent_forward, softmax_xent_backward (kernels/softmax_xent.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

class OpChecks;  // shape_helpers.h

const Op* softmax_xent_op();   // "SoftmaxCrossEntropyLoss"
const Op* kl_divergence_op();  // "KullbackLeiblerDivergence"
// "SoftmaxCrossEntropyLossGrad", of both: (prob, labels, dloss) -> dlogits
const Op* softmax_xent_grad_op();

/// Refuses a label_smoothing, an ignore_index or class_weights that do not fit so many classes.
void check_class_attributes(OpChecks& check, const Attributes& attributes, int64_t classes);

}  // namespace trainyard
