// Access   8 B an element; adjacent threads process adjacent elements.
// Time     bytes / 4.8 TB/s on an H200: the gradient of [8192, 768] in 10 us.
#include "kernels/cuda/scale_in_place.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void scale_all(int64_t count, float factor, float* x) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) x[i] *= factor;
}

}  // namespace

void scale_in_place(int64_t count, float factor, float* x, CUstream_st* stream) {
  launch(grid_for(count), stream, scale_all, count, factor, x);
}

}  // namespace trainyard::kernels::cuda
