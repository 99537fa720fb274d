// src/ops/softmax.h: ONNX Softmax and LogSoftmax.
// Inputs      x, rank >= 1.    Output  y, as x.
// Attributes  axis, default -1.
// Saves       y.
// Gradients   x, assigned.
// Refuses     empty inputs; axis out of range.
// Kernels     softmax_forward, softmax_backward (kernels/softmax.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* softmax_op();           // "Softmax"
const Op* softmax_grad_op();      // "SoftmaxGrad": (y, dy) -> dx
const Op* log_softmax_op();       // "LogSoftmax"
const Op* log_softmax_grad_op();  // "LogSoftmaxGrad": (y, dy) -> dx

}  // namespace trainyard
