// Access   one number is read, and written twice.
// Time     that of a launch, 2 us; two launches for each bucket of gradients.
#include "kernels/cuda/count_up.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void count(int64_t* counter, volatile int64_t* seen) { *seen = ++*counter; }

}  // namespace

void count_up(int64_t* counter, int64_t* seen, CUstream_st* stream) {
  launch(Grid{1, 1}, stream, count, counter, seen);
}

}  // namespace trainyard::kernels::cuda
