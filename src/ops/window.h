// src/ops/window.h: the attributes of sliding windows (Conv, MaxPool, AveragePool), with ONNX's
// names and defaults: kernel_shape [R, S], strides [1, 1], pads [0, 0, 0, 0] as [top, left, bottom,
// right], dilations [1, 1].
#pragma once

#include "kernels/image.h"
#include "src/graph/op.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {

/// Refuses lists of the wrong length and values out of range. `kernel_required` is false where the
/// weights tell the size. Pads of a pool must be smaller than the window (`pads_below_kernel`).
void check_window(OpChecks& check, const InferContext& c, bool kernel_required,
                  bool pads_below_kernel);

/// Reads what check_window has accepted. R and S are used where kernel_shape is absent.
kernels::Window window_of(const Attributes& attributes, int64_t R = 0, int64_t S = 0);

/// The window of a pool over `x`. With ceil_mode a last window that begins inside the image or the
/// padding before it counts too, which is the same as padding more behind.
kernels::Window pool_window(const Attributes& attributes, const Shape& x);

/// Refuses a window larger than the padded image `x` [N, C, H, W].
void check_window_fits(OpChecks& check, const kernels::Window& window, const Shape& x);
/// The same for a pool, and refuses one of which some window has no cell inside the image.
void check_pool_fits(OpChecks& check, const Attributes& attributes, const Shape& x);

/// [N, channels, P, Q].
Shape window_output(const kernels::Window& window, const Shape& x, int64_t channels);

/// input_shape of a gradient node whose input is not kept: refused unless four dimensions >= 1.
void check_input_shape(OpChecks& check, const InferContext& c);
Shape input_shape_of(const Attributes& attributes);

kernels::ImageDims image_dims(const Shape& x);  // rank 4, or rank 2 with H = W = 1

}  // namespace trainyard
