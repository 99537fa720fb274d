// The formulas are those of the CPU, from kernels/math/activations.h; this file only adds the
// loops.
//
// Access   each thread processes four adjacent elements, so that warps access whole cache lines.
//          forward reads x and writes y, 8 B an element (4 in bf16); backward reads two tensors and
//          writes one, 12 B (6).
// Time     bytes / 4.8 TB/s on an H200: 64 Mi elements in 112 us forward, 168 us backward, in F32.
#include "kernels/activation.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

// x and y may be the same array: each thread reads its elements before it writes them, and no other
// thread accesses them. Hence neither is __restrict__.
template <typename F>
TRAINYARD_KERNEL void forward(int64_t count, bool fours, In x, Out y, F f) {
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) y.set(i, f.f(x[i]));
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    Four v = load4(x, i);
    for (float& e : v.v) e = f.f(e);
    store4(y, i, v);
  }
}

template <typename F>
TRAINYARD_KERNEL void backward(int64_t count, bool fours, In saved, In dy, Out dx, F f) {
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
      dx.set(i, f.df(saved[i], dy[i]));
    }
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    const Four s = load4(saved, i);
    Four v = load4(dy, i);
    for (int k = 0; k < 4; ++k) v.v[k] = f.df(s.v[k], v.v[k]);
    store4(dx, i, v);
  }
}

}  // namespace

template <typename F>
void activation_forward(int64_t count, In x, Out y, Run run, const F& f) {
  check_activation(count, x, y);
  const bool fours = count % 4 == 0 && takes_four(x) && takes_four(y);
  launch(grid_for(fours ? count / 4 : count), run.stream, forward<F>, count, fours, x, y, f);
}

template <typename F>
void activation_backward(int64_t count, In saved, In dy, Out dx, Run run, const F& f) {
  check_activation(count, saved, dy, dx);
  const bool fours = count % 4 == 0 && takes_four(saved) && takes_four(dy) && takes_four(dx);
  launch(grid_for(fours ? count / 4 : count), run.stream, backward<F>, count, fours, saved, dy, dx,
         f);
}

#define TRAINYARD_INSTANTIATE(F)                                                    \
  template void activation_forward<math::F>(int64_t, In, Out, Run, const math::F&); \
  template void activation_backward<math::F>(int64_t, In, In, Out, Run, const math::F&);
TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::cuda
