// src/passes/fuse_products.h: operations that a library can compute within a product become one
// node with it.
//
//   Gemm, Gelu          -> GemmGelu; the product alone is an output where backward reads it
//   GemmGrad, GeluGrad  -> GeluGemmGrad
//
// Gelu in its tanh form, which is cuBLASLt's. Reshapes between them, to positions and back, fall
// away. Runs behind recompute, which cuts a graph between the nodes that this one joins.
//
// For a GPU alone, because the mask is a tensor that no other backend needs:
//
//   Gemm, Relu           -> GemmRelu; a mask is an output where the gradient below reads it
//   GemmGrad, ReluGrad   -> ReluGemmGrad, where x of the product is what ReLU gave
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void fuse_products(Graph& graph);
/// Runs behind fuse_head, whose head may be behind a ReLU, too.
void fuse_relu_products(Graph& graph);

}  // namespace trainyard
