// src/ops/resize.h: scales images, ONNX Resize over H and W.
// Inputs     x [N, C, H, W].    Output  y [N, C, P, Q]
// Attributes either sizes [P, Q] or scales, one number for both axes (ONNX has one per axis): P =
//            floor(H * scale), Q likewise; mode "nearest" (default) or "linear";
//            coordinate_transformation_mode, which maps row i of y to a coordinate in x:
//              "half_pixel" (default)  (i + 0.5) / scale - 0.5
//              "align_corners"         i * (H - 1) / (P - 1), 0 where P is 1
//              "asymmetric"            i / scale
//            in which scale is P / H if sizes are given; nearest_mode, which of the two rows around
//            that coordinate to take: "round_prefer_floor" (default), "round_prefer_ceil", "floor",
//            "ceil". Rows beyond the border are equal to the border.
// Saves      nothing; the gradient node has the attribute input_shape.
// Gradients  x, assigned.
// Refuses    other ranks, both or neither of sizes and scales, an empty or too large y, a
//            nearest_mode with mode linear.
// Kernels    resample (kernels/resample.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* resize_op();       // "Resize"
const Op* resize_grad_op();  // "ResizeGrad": (dy) -> dx, attribute input_shape

/// The rows of x from which row (or column) i of y is interpolated: `lower` with weight 1 -
/// upper_share, `upper` with weight upper_share. The attributes must have passed infer.
struct ResizedRow {
  int64_t lower, upper;
  double upper_share;
};
ResizedRow resized_row(const Attributes& attributes, int64_t x_size, int64_t y_size, int64_t i);

}  // namespace trainyard
