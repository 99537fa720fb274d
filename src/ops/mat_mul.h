// src/ops/mat_mul.h: ONNX MatMul, which is numpy's matmul: the last two dimensions are matrices,
// those before them a batch, which is broadcast.
// Inputs     a [..., M, K]; b [..., K, N]. A vector a is a row [1, K], a vector b a column [K, 1].
// Output     c [..., M, N]; M or N is left out if a or b has rank 1.
// Saves      nothing of its own; the gradient reads a and b.
// Gradients  a, b, assigned by one node and summed over broadcast dimensions; unneeded outputs are
//            left out.
// Refuses    rank 0, empty inputs, sizes that do not agree or cannot be broadcast.
// Kernels    matmul_forward, matmul_backward (kernels/matmul.h)
#pragma once

#include "kernels/matmul.h"
#include "src/graph/op.h"

namespace trainyard {

const Op* mat_mul_op();       // "MatMul"
const Op* mat_mul_grad_op();  // "MatMulGrad": (a, b, dc) -> da, db

/// Returns the matrix products that the shapes require. If b is a single matrix, the batch of a
/// becomes rows of one product.
kernels::MatMulBatch mat_mul_batch(const Shape& a, const Shape& b);

}  // namespace trainyard
