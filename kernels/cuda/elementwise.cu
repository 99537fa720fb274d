// Access   each thread writes four adjacent elements; 4 B an element (2 in bf16).
// Time     bytes / 4.8 TB/s on an H200: 64 Mi elements in F32 in 56 us.
#include "kernels/elementwise.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void fill_all(int64_t count, bool fours, float value, Out y) {
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) y.set(i, value);
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    store4(y, i, {{value, value, value, value}});
  }
}

}  // namespace

void fill(int64_t count, float value, Out y, Run run) {
  check_fill(count, y);
  const bool fours = count % 4 == 0 && takes_four(y);
  launch(grid_for(fours ? count / 4 : count), run.stream, fill_all, count, fours, value, y);
}

}  // namespace trainyard::kernels::cuda
