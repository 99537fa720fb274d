// Access   each thread copies four adjacent elements (one, if rows are no multiples of four); 8 B
// an
//          element in F32.
// Time     bytes / 4.8 TB/s on an H200; a step of generation copies a few KiB, so that the launch
//          is all of it, about 2 us.
#include "kernels/tensor_scatter.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

template <int kStep>
TRAINYARD_KERNEL void scatter_by_position(TensorScatterDims d, In update, const int32_t* position,
                                          Out cache) {
  const int64_t groups = d.W / kStep;
  for (int64_t i = thread_index(); i < d.N * d.T * groups; i += thread_count()) {
    const int64_t row = d.row(position, i / groups);
    if (row < 0) continue;
    const int64_t from = i * kStep, to = row * d.W + i % groups * kStep;
    if constexpr (kStep == 4) {
      store4(cache, to, load4(update, from));
    } else {
      cache.set(to, update[from]);
    }
  }
}

}  // namespace

void tensor_scatter(const TensorScatterDims& d, In update, const int32_t* position, Out cache,
                    Run run) {
  check(d, update, position, cache);
  const bool fours = d.W % 4 == 0 && takes_four(update) && takes_four(cache);
  launch(grid_for(d.N * d.T * (fours ? d.W / 4 : d.W)), run.stream,
         fours ? scatter_by_position<4> : scatter_by_position<1>, d, update, position, cache);
}

}  // namespace trainyard::kernels::cuda
