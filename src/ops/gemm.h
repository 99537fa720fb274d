// src/ops/gemm.h: fully connected layer, y = x w^T + b.
// Inputs      x [N, F]; w [K, F]; b [K], optional.    Output  y [N, K].
// Attributes  transB: must be 1. Weights are stored one row per output, as PyTorch and ONNX exports
//             do.
// Saves       nothing of its own; the gradient reads x and w.
// Gradients   x, w, b, assigned: one node, what nobody needs is left out.
// Refuses     other ranks, sizes that do not agree, transB other than 1.
// Kernels     gemm_forward, gemm_backward (kernels/gemm.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gemm_op();       // "Gemm"
const Op* gemm_grad_op();  // "GemmGrad": (x, w, dy) -> dx, dw, db

}  // namespace trainyard
