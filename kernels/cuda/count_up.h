// kernels/cuda/count_up.h: how far a stream has come, for a host that must not wait for it.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

/// ++*counter, which is then in *seen too: memory of the host that the device can write (pinned).
/// One thread. Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
void count_up(int64_t* counter, int64_t* seen, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
