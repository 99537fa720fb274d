// kernels/cuda/column_sum.h: out[j] = sum_i x[i, j], the gradient of a bias.
//
/// Shapes    x [rows, columns] row-major, out [columns].
/// Writes    all of out, assigned.
/// Numerics  each sum runs from the first row to the last, in one thread: the same bits in every
/// run.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t without the CUDA headers

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

void column_sum(int64_t rows, int64_t columns, const float* x, float* out, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
