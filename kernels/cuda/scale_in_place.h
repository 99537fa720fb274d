// kernels/cuda/scale_in_place.h: scales an array, for example NCCL's means to sums.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

/// x[i] *= factor. Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
void scale_in_place(int64_t count, float factor, float* x, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
