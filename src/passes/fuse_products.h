// src/passes/fuse_products.h: fuses products with operations that a library can compute within
// them.
//
//   Gemm, Gelu          -> GemmGelu; the product alone is an output if backward reads it
//   GemmGrad, GeluGrad  -> GeluGemmGrad
//
// Gelu must have the tanh form, which is that of cuBLASLt, except on a GPU, where cuDNN may have
// the exact form. Reshapes between the nodes, to positions and back, are removed. Runs after
// recompute, which cuts graphs between the nodes that this pass fuses.
//
// The pass runs only for GPUs, because the mask is a tensor that no other backend needs:
//
//   Gemm, Relu           -> GemmRelu; a mask is an output if the gradient below reads it
//   GemmGrad, ReluGrad   -> ReluGemmGrad, if x of the product is the output of that ReLU
#pragma once

#include "src/graph/graph.h"
#include "src/passes/processor.h"

namespace trainyard {

void fuse_products(Graph& graph, Processor processor = Processor::kCpu);
/// Must run after fuse_head, because the head's product may read a ReLU, too.
void fuse_relu_products(Graph& graph);

}  // namespace trainyard
