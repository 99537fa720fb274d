// src/ops/max_pool.h: maximum over a sliding window, ONNX MaxPool without its optional Indices.
// Inputs     x [N, C, H, W].
// Outputs    y; with keep_winner also winner, as y in U8: the number r * S + s of the cell in its
//            window, first maximum first.
// Attributes kernel_shape (required), strides [1, 1], pads [0, 0, 0, 0], dilations [1, 1],
//            ceil_mode 0, storage_order 0; keep_winner 0, or 1 where the gradient is wanted and the
//            window has at most 256 cells; relu 0, or 1: y = max(0, maximum), and a window that is
//            0 by it has no winner (255). No layer sets it, but src/passes/fuse_pools.cc, and it
//            takes keep_winner where the gradient is wanted.
// Saves      winner, a quarter of y or half of it in 16 bits; else x, in which backward finds the
//            maximum again.
// Gradients  x, assigned; the first maximum of a window gets dy.
// Refuses    other ranks, pads not below kernel_shape, a window larger than the padded image or
//            with no cell inside it, other storage_order, keep_winner of larger windows.
// Kernels    max_pool_forward, max_pool_backward (kernels/pool.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

/// Whether keep_winner is possible.
bool has_byte_cells(const Attributes& pool);

const Op* max_pool_op();  // "MaxPool"
/// "MaxPoolGrad": (dy, x, winner) -> dx, of which x or winner is left out. Attributes as MaxPool;
/// input_shape (required).
const Op* max_pool_grad_op();

}  // namespace trainyard
