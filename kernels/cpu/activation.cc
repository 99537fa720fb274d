#include "kernels/activation.h"

#include "kernels/cpu/simd/activation.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

template <typename F>
const UnaryLoops<F>& loops_of();
#define TRAINYARD_LOOPS(F)                         \
  template <>                                      \
  const UnaryLoops<math::F>& loops_of<math::F>() { \
    return activation_loops().F;                   \
  }
TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_LOOPS)
#undef TRAINYARD_LOOPS

// The minimum number of elements per thread: an exponential takes about 5 times as long as a
// maximum.
template <typename F>
constexpr int64_t kGrain = kElementsPerThread / 4;
template <>
constexpr int64_t kGrain<math::Relu> = kElementsPerThread;

}  // namespace

template <typename F>
void activation_forward(int64_t count, const float* x, float* y, Run run, const F& f) {
  check_activation(count, x, y);
  run.team.parallel_for(count, kGrain<F>, [&](int64_t begin, int64_t end) {
    loops_of<F>().forward(f, end - begin, x + begin, y + begin);
  });
}

template <typename F>
void activation_backward(int64_t count, const float* saved, const float* dy, float* dx, Run run,
                         const F& f) {
  check_activation(count, saved, dy, dx);
  run.team.parallel_for(count, kGrain<F>, [&](int64_t begin, int64_t end) {
    loops_of<F>().backward(f, end - begin, saved + begin, dy + begin, dx + begin);
  });
}

#define TRAINYARD_INSTANTIATE(F)                                                                 \
  template void activation_forward<math::F>(int64_t, const float*, float*, Run, const math::F&); \
  template void activation_backward<math::F>(int64_t, const float*, const float*, float*, Run,   \
                                             const math::F&);
TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::cpu
