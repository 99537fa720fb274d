// src/ops/max_pool.h: maximum over a sliding window, ONNX MaxPool without its optional Indices.
// Inputs     x [N, C, H, W].
// Outputs    y; with keep_winner also winner, U8 in the shape of y: the number r * S + s of the
//            maximum's cell in its window; of equal maxima the first.
// Attributes kernel_shape (required), strides [1, 1], pads [0, 0, 0, 0], dilations [1, 1],
//            ceil_mode 0, storage_order 0; keep_winner 0, or 1 to write winner for the gradient,
//            which needs a window of at most 256 cells; relu 0, or 1: y = max(0, maximum), and a
//            window whose maximum is not above 0 has no winner (255). Only src/passes/fuse_pools.cc
//            sets relu; if the gradient is needed, relu requires keep_winner.
// Saves      winner, which takes a quarter of the memory of y, or half if y has 16 bits; without
//            keep_winner x, in which backward searches the maximum again.
// Gradients  x, assigned; the first maximum of a window gets dy.
// Refuses    other ranks, pads not below kernel_shape, a window larger than the padded image or
//            with no cell inside it, other storage_order, keep_winner for larger windows.
// Kernels    max_pool_forward, max_pool_backward (kernels/pool.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

/// Returns whether the pool's window is small enough for keep_winner.
bool has_byte_cells(const Attributes& pool);

const Op* max_pool_op();  // "MaxPool"
/// "MaxPoolGrad": (dy, x, winner) -> dx; either x or winner is left out. Attributes as MaxPool;
/// input_shape (required).
const Op* max_pool_grad_op();

}  // namespace trainyard
