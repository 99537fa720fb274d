// src/passes/assign_precision.h: stores the activations of a program in 16 bits.
//
// Activations and their gradients become BF16 or F16. These stay F32: tensors that ops keep in F32
// (Op::precision_rule()), with F16 also results of Exp, Pow, Reciprocal and sums, marked outputs
// (the loss, logits), scores that a loss reads, and everything in the update. Parameters, state and
// gradients of parameters stay F32 as well. If a product reads a parameter or an input, a Cast is
// inserted, once per run for forward and backward; in a training program the casts of parameters
// come first. For a GPU, the bias of a product with a 16-bit result is cast, too: cuBLASLt requires
// a 16-bit bias, and would round there anyway.
//
// TF32 changes no tensor: it allows products to round their factors.
#pragma once

#include "src/graph/graph.h"
#include "src/passes/processor.h"

namespace trainyard {

/// Requires a `storage` other than kAsTyped.
void assign_half(Graph& graph, Storage storage, Processor processor = Processor::kCpu);

/// Sets kTf32Attribute (src/ops/tf32.h) on every op that multiplies F32 operands: products,
/// convolutions, recurrent layers, and attention.
void allow_tf32(Graph& graph);

}  // namespace trainyard
