// src/ops/window.h: the attributes of sliding windows (Conv, MaxPool, AveragePool), with ONNX's
// names and defaults: kernel_shape [R, S], strides [1, 1], pads [0, 0, 0, 0] as [top, left, bottom,
// right], dilations [1, 1].
#pragma once

#include "kernels/image.h"
#include "src/graph/op.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {

/// Refuses lists of the wrong length and values out of range. `kernel_required` is false if the
/// weights determine the window's size. With `pads_below_kernel` (pools), pads must be smaller than
/// the window.
void check_window(OpChecks& check, const InferContext& c, bool kernel_required,
                  bool pads_below_kernel);

/// The attributes must have passed check_window. R and S are used if kernel_shape is absent.
kernels::Window window_of(const Attributes& attributes, int64_t R = 0, int64_t S = 0);

/// Returns the window of a pool over `x`. With ceil_mode there is one more window if it begins
/// inside the image or the padding before it; the result then has more padding at the end.
kernels::Window pool_window(const Attributes& attributes, const Shape& x);

/// Refuses a window larger than the padded image `x` [N, C, H, W].
void check_window_fits(OpChecks& check, const kernels::Window& window, const Shape& x);
/// Refuses a pool with a window larger than the padded image `x` [N, C, H, W], or with a window
/// that has no cell inside the image.
void check_pool_fits(OpChecks& check, const Attributes& attributes, const Shape& x);

/// Returns [N, channels, P, Q].
Shape window_output(const kernels::Window& window, const Shape& x, int64_t channels);

/// Checks the attribute input_shape of a gradient node that does not read the forward input: four
/// dimensions of at least 1.
void check_input_shape(OpChecks& check, const InferContext& c);
Shape input_shape_of(const Attributes& attributes);

kernels::ImageDims image_dims(const Shape& x);  // rank 4, or rank 2 with H = W = 1

}  // namespace trainyard
