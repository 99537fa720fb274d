// src/ops/resize.h: images of another size, ONNX Resize over H and W.
// Inputs     x [N, C, H, W].    Output  y [N, C, P, Q]
// Attributes sizes [P, Q] or scales, one of them: P = floor(H * scale), columns alike (one number,
//            where ONNX has one for each axis); mode
//            "nearest" (default) or "linear"; coordinate_transformation_mode, where in x the middle
//            of y's row i lies:
//              "half_pixel" (default)  (i + 0.5) / scale - 0.5
//              "align_corners"         i * (H - 1) / (P - 1), 0 where P is 1
//              "asymmetric"            i / scale
//            with scale P / H where sizes are given; nearest_mode, which of the two rows around
//            that: "round_prefer_floor" (default), "round_prefer_ceil", "floor", "ceil". Rows
//            beyond the border are the border's.
// Saves      nothing; the gradient node carries input_shape.
// Gradients  x, assigned.
// Refuses    other ranks, both or neither of sizes and scales, an empty or too large y, a
//            nearest_mode beside mode linear.
// Kernels    resample (kernels/resample.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* resize_op();       // "Resize"
const Op* resize_grad_op();  // "ResizeGrad": (dy) -> dx, attribute input_shape

/// What row (or column) i of y is made of: rows lower and upper of x, with shares 1 - upper_share
/// and upper_share. Reads what infer has accepted.
struct ResizedRow {
  int64_t lower, upper;
  double upper_share;
};
ResizedRow resized_row(const Attributes& attributes, int64_t x_size, int64_t y_size, int64_t i);

}  // namespace trainyard
