// src/ops/softmax_xent.h: classification loss, mean over the batch.
// Inputs     logits [N, K]; labels [N], I32 in [0, K), no gradient.    Outputs  loss [1]; prob [N,
// K]. Saves      prob, so that backward needs neither logits nor exp. Gradients  logits, assigned.
// Refuses    rank other than 2; K < 2; labels not I32.
// Kernels    softmax_xent_forward, softmax_xent_backward (kernels/softmax_xent.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* softmax_xent_op();  // "SoftmaxCrossEntropyLoss"
const Op*
softmax_xent_grad_op();  // "SoftmaxCrossEntropyLossGrad": (prob, labels, dloss) -> dlogits

}  // namespace trainyard
