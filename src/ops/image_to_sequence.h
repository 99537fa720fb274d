// src/ops/image_to_sequence.h: the pixels of an image as the positions of a sequence, row by row.
// Not in ONNX, which has it as Reshape and Transpose; here it follows the image's layout, and from
// channels-last it moves nothing.
// Inputs     x [N, C, H, W].    Output  y [N, H * W, C]
// Gradients  x, assigned.
// Refuses    other ranks.
// Kernels    nchw_to_nhwc, copy (kernels/layout.h, kernels/elementwise.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* image_to_sequence_op();       // "ImageToSequence"
const Op* image_to_sequence_grad_op();  // "ImageToSequenceGrad": dy -> dx; attribute shape: of x

}  // namespace trainyard
