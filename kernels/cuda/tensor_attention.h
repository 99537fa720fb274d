// kernels/cuda/tensor_attention.h: attention on the tensor cores of compute capability 8.0 and
// later, in TF32. It reads operands in any storage format, draws the same dropout as every other
// backend, and has the contract of kernels/attention.h. attention.cu calls it.
#pragma once

#include "kernels/attention.h"

namespace trainyard::kernels::cuda {

/// Whether the dims allow TF32 and heads are narrow enough (at most 128 elements).
bool takes_tensor_attention(const AttentionDims& d);
void tensor_attention_forward(const AttentionDims& d, const AttentionOperands<Views>& o, Run run);
/// Writes dq, dk and dv as far as they are given. `delta` [N, H, Tq] = dy . y.
void tensor_attention_backward(const AttentionDims& d, const AttentionGradOperands<Views>& o,
                               const float* delta, Run run);

}  // namespace trainyard::kernels::cuda
