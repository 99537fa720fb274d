// src/ops/gemm.h: fully connected layer, y = x w^T + b.
// Inputs      x [N, F]; w [K, F]; b [K], optional.    Output  y [N, K].
// Attributes  transB: must be 1. Weights are stored with one row per output, as in PyTorch and in
//             ONNX exports.
// Saves       nothing of its own; the gradient reads x and w.
// Gradients   x, w, b, assigned by one node; unneeded outputs are left out.
// Spread      all kOwn, or, for a layer that is split over the ranks (src/ops/row_exchange.h), one
//             of two forms. If w is split by rows: x kGathered and the others kClasses or kUnits;
//             y, dw and db have the same spread as w, dx is kSummand. If w is split by columns: x
//             and w kUnits, no b, dy kGathered; y is kSummand, dx and dw are kUnits.
// Refuses     other ranks, sizes that do not agree, transB other than 1.
// Kernels     gemm_forward, gemm_backward (kernels/gemm.h)
//
// The ops below are fused with Relu or Gelu. No layer creates them: src/passes/fuse_products.cc
// inserts them into graphs, and src/ops/parts.h lists their parts. Ops with Gelu have its attribute
// approximate; the default is "tanh", and "none" occurs only in graphs for a GPU.
//
// GemmGelu: y = gelu(pre), pre = Gemm(x, w, b)
// Outputs     y [N, K]; pre, as y, written for backward (may be left out).
//
// GeluGemmGrad: the gradients of Gemm(gelu(pre), w, b)
// Inputs      x, which is gelu(pre); w; dy; pre, as x.    Outputs  as GemmGrad, with dpre in place
//             of dx.
//
// GemmRelu: y = relu(Gemm(x, w, b)), only in graphs for a GPU
// Outputs     y [N, K]; mask, U8 [N, relu_mask_bytes(K)], one bit per element: whether ReLU kept
//             it, in the order of the library that computes it (may be left out). Only the gradient
//             on the same device reads the mask, and only if the device reports that it writes
//             masks; a backend that runs the parts does not write it.
//
// ReluGemmGrad: the gradients of Gemm(relu(pre), w, b), only in graphs for a GPU
// Inputs      x, which is relu(pre); w; dy; mask of x.    Outputs  as GemmGrad, with dpre in place
//             of dx.
//
// GemmAdd: y = Gemm(x, w, b) + c, only in graphs for a CPU (src/passes/fuse_low_rank.cc)
// Inputs      x; w; b, optional; c [N, K], whose memory y may take.    Output  y [N, K].
//
// GemmGradAdd: the gradients of Gemm(x, w, b), of which c is added to dx, only in graphs for a CPU
// Inputs      x; w; dy; c [N, F], whose memory dx may take.    Outputs  as GemmGrad.
#pragma once

#include <cstdint>

#include "src/graph/op.h"

namespace trainyard {

const Op* gemm_op();       // "Gemm"
const Op* gemm_grad_op();  // "GemmGrad": (x, w, dy) -> dx, dw, db

const Op* gemm_gelu_op();       // "GemmGelu": (x, w, b) -> y, pre
const Op* gelu_gemm_grad_op();  // "GeluGemmGrad": (x, w, dy, pre) -> dpre, dw, db
/// The attribute of these two that selects the form of Gelu, as in the op Gelu.
inline constexpr const char* kApproximate = "approximate";
/// Whether such a node has the tanh form, and not the exact one.
inline bool has_tanh_form(const Node& node) {
  return node.attributes.get_string(kApproximate, "tanh") == "tanh";
}

const Op* gemm_relu_op();       // "GemmRelu": (x, w, b) -> y, mask
const Op* relu_gemm_grad_op();  // "ReluGemmGrad": (x, w, dy, mask) -> dpre, dw, db
const Op* gemm_add_op();        // "GemmAdd": (x, w, b, c) -> y
const Op* gemm_grad_add_op();   // "GemmGradAdd": (x, w, dy, c) -> dx, dw, db

/// Returns the bytes of the mask of one row of K values; the row is padded to a multiple of 128
/// bits.
constexpr int64_t relu_mask_bytes(int64_t K) { return (K + 127) / 128 * 16; }

}  // namespace trainyard
