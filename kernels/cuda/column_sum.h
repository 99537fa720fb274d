// kernels/cuda/column_sum.h: out[j] = sum_i x[i, j], the gradient of a bias.
//
/// Shapes    x [rows, columns] row-major, with `row` elements between the starts of rows (0:
///           dense); out [columns].
/// Writes    all of out, assigned.
/// Numerics  separate threads sum parts of the rows, and the parts are added in order:
///           bit-identical in every run.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; cudaPeekAtLastError() reports failures

int64_t column_sum_workspace_bytes(int64_t rows, int64_t columns);
void column_sum(int64_t rows, int64_t columns, In x, float* out, void* workspace,
                CUstream_st* stream, int64_t row = 0);

}  // namespace trainyard::kernels::cuda
