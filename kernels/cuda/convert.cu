// Access   four neighbours for each thread, read once and written once: 6 B an element between the
//          two types.
// Time     bytes / 4.8 TB/s on an H200: 64 Mi elements in 84 us.
#include "kernels/cuda/convert.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void convert_all(int64_t count, bool fours, In x, Out y) {
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) y.set(i, x[i]);
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    store4(y, i, load4(x, i));
  }
}

}  // namespace

void convert(int64_t count, In x, Out y, CUstream_st* stream) {
  const bool fours = count % 4 == 0 && takes_four(x) && takes_four(y);
  launch(grid_for(fours ? count / 4 : count), stream, convert_all, count, fours, x, y);
}

}  // namespace trainyard::kernels::cuda
