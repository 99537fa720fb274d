// src/ops/image_to_sequence.h: turns the pixels of an image into the positions of a sequence, row
// by row. ONNX has no such op, only Reshape and Transpose; this one knows the image's layout and
// needs no transposition if it is channels-last.
// Inputs     x [N, C, H, W].    Output  y [N, H * W, C]
// Gradients  x, assigned.
// Refuses    other ranks.
// Kernels    nchw_to_nhwc, copy (kernels/layout.h, kernels/elementwise.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* image_to_sequence_op();  // "ImageToSequence"
const Op*
image_to_sequence_grad_op();  // "ImageToSequenceGrad": dy -> dx; attribute shape: that of x

}  // namespace trainyard
