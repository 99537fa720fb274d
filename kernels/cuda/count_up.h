// kernels/cuda/count_up.h: shows the progress of a stream to a host thread that must not block on
// it.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

/// Increments *counter and copies it to *seen, which is pinned host memory that the device can
/// write. One thread. Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
void count_up(int64_t* counter, int64_t* seen, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
