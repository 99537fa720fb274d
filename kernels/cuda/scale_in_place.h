// kernels/cuda/scale_in_place.h: sums out of the means that NCCL gives.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

/// x[i] *= factor. Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
void scale_in_place(int64_t count, float factor, float* x, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
