// src/ops/mat_mul.h: ONNX MatMul, which is numpy's matmul: the last two dimensions are matrices,
// those before them a batch, which is broadcast. Inputs     a [..., M, K]; b [..., K, N]. Of rank
// 1: a is a row [1, K], b a column [K, 1]. Output     c [..., M, N]; M or N is left out where a or
// b has rank 1. Saves      nothing of its own; the gradient reads a and b. Gradients  a, b,
// assigned; summed over what was broadcast. One node, what nobody needs is left out. Refuses rank
// 0, empty inputs, sizes that do not agree or cannot be broadcast. Kernels    matmul_forward,
// matmul_backward (kernels/matmul.h)
#pragma once

#include "kernels/matmul.h"
#include "src/graph/op.h"

namespace trainyard {

const Op* mat_mul_op();       // "MatMul"
const Op* mat_mul_grad_op();  // "MatMulGrad": (a, b, dc) -> da, db

/// Which products the shapes mean. Where b is one matrix, the batch of a is rows of one product.
kernels::MatMulBatch mat_mul_batch(const Shape& a, const Shape& b);

}  // namespace trainyard
