// src/ops/gemm.h: fully connected layer, y = x w^T + b.
// Inputs      x [N, F]; w [K, F]; b [K], optional.    Output  y [N, K].
// Attributes  transB: must be 1. Weights are stored one row per output, as PyTorch and ONNX exports
//             do.
// Saves       nothing of its own; the gradient reads x and w.
// Gradients   x, w, b, assigned: one node, what nobody needs is left out.
// Spread      all kOwn; or parts, of what is split over ranks (src/ops/row_exchange.h). By rows of
//             w: x kGathered and the others kClasses, or kUnits; y, dw and db are that then and dx
//             is kSummand. By columns: x and w kUnits without b, dy kGathered; y is kSummand then,
//             dx and dw are kUnits.
// Refuses     other ranks, sizes that do not agree, transB other than 1.
// Kernels     gemm_forward, gemm_backward (kernels/gemm.h)
//
// With the tanh form of Gelu, or with Relu, behind or in front of it; no layer becomes these ops,
// but src/passes/fuse_products.cc puts them into a graph. src/ops/parts.h says what they are made
// of.
//
// GemmGelu: y = gelu(pre), pre = Gemm(x, w, b)
// Outputs     y [N, K]; pre, as y, written for backward (may be left out).
//
// GeluGemmGrad: the gradients of Gemm(gelu(pre), w, b)
// Inputs      x, which is gelu(pre); w; dy; pre, as x.    Outputs  as GemmGrad, but dpre for dx.
//
// GemmRelu: y = relu(Gemm(x, w, b)), of a GPU's graph alone
// Outputs     y [N, K]; mask, U8 [N, M], bits in which a library keeps what ReLU has let through,
//             in its own order (may be left out). M holds K bits in steps of 128. Only the gradient
//             on the same device reads it, and only where the device says that it is written; a
//             backend that runs the parts leaves it as it is.
//
// ReluGemmGrad: the gradients of Gemm(relu(pre), w, b), of a GPU's graph alone
// Inputs      x, which is relu(pre); w; dy; mask, of x.    Outputs  as GemmGrad, but dpre for dx.
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

const Op* gemm_op();       // "Gemm"
const Op* gemm_grad_op();  // "GemmGrad": (x, w, dy) -> dx, dw, db

const Op* gemm_gelu_op();       // "GemmGelu": (x, w, b) -> y, pre
const Op* gelu_gemm_grad_op();  // "GeluGemmGrad": (x, w, dy, pre) -> dpre, dw, db

const Op* gemm_relu_op();       // "GemmRelu": (x, w, b) -> y, mask
const Op* relu_gemm_grad_op();  // "ReluGemmGrad": (x, w, dy, mask) -> dpre, dw, db
/// Of a row of K values.
constexpr int64_t relu_mask_bytes(int64_t K) { return (K + 127) / 128 * 16; }

}  // namespace trainyard
