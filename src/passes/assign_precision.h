// src/passes/assign_precision.h: stores what a program computes in 16 bits.
//
// Activations and their gradients become BF16 or F16, except for what ops keep in F32
// (Op::precision_rule()), in F16 besides what Exp, Pow, Reciprocal and sums make, what is marked
// for reading (the loss, logits), scores that a loss is taken of, and everything of the update.
// Parameters, state and gradients of parameters stay F32. Where a product reads a parameter or an
// input, a Cast is inserted: once per run, for forward and backward; in a training program those of
// parameters come first. For a GPU so does one of each bias that a product with a result in 16 bits
// adds: cuBLASLt adds no other, and would round it there.
//
// TF32 leaves all tensors as they are: products may round what they multiply.
#pragma once

#include "src/graph/graph.h"
#include "src/passes/processor.h"

namespace trainyard {

/// `storage` is not kAsTyped.
void assign_half(Graph& graph, Storage storage, Processor processor = Processor::kCpu);

/// Sets kTf32Attribute (src/ops/tf32.h) on products that a library makes: attention is a kernel of
/// our own, in F32.
void allow_tf32(Graph& graph);

}  // namespace trainyard
