#include "kernels/elementwise.h"

#include "kernels/activation.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"
#include "kernels/layout.h"

#include <cstring>

namespace trainyard::kernels::cpu {
namespace {

template <typename F>
const ActivationLoops& loops_of();
template <>
const ActivationLoops& loops_of<math::Relu>() {
  return elementwise_loops().relu;
}
template <>
const ActivationLoops& loops_of<math::Sigmoid>() {
  return elementwise_loops().sigmoid;
}
template <>
const ActivationLoops& loops_of<math::Tanh>() {
  return elementwise_loops().tanh;
}
template <>
const ActivationLoops& loops_of<math::GeluErf>() {
  return elementwise_loops().gelu_erf;
}
template <>
const ActivationLoops& loops_of<math::GeluTanh>() {
  return elementwise_loops().gelu_tanh;
}

// Elements that are worth a thread: an exponential takes about 50 times a maximum's time.
template <typename F>
constexpr int64_t kGrain = kElementsPerThread / 16;
template <>
constexpr int64_t kGrain<math::Relu> = kElementsPerThread;

}  // namespace

template <typename F>
void activation_forward(int64_t count, const float* x, float* y, Team& team) {
  team.parallel_for(count, kGrain<F>, [&](int64_t begin, int64_t end) {
    loops_of<F>().forward(end - begin, x + begin, y + begin);
  });
}

template <typename F>
void activation_backward(int64_t count, const float* saved, const float* dy, float* dx,
                         Team& team) {
  team.parallel_for(count, kGrain<F>, [&](int64_t begin, int64_t end) {
    loops_of<F>().backward(end - begin, saved + begin, dy + begin, dx + begin);
  });
}

void add(int64_t count, const float* a, const float* b, float* c, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    elementwise_loops().add(end - begin, a + begin, b + begin, c + begin);
  });
}

void fill(int64_t count, float value, float* y, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    elementwise_loops().fill(end - begin, value, y + begin);
  });
}

void copy(int64_t count, const float* x, float* y, Team& team) {
  if (x == y) return;
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void nchw_to_nhwc(ImageDims d, const float* x, float* y, Team& team) {
  const int64_t image = d.C * d.pixels();
  team.parallel_for(d.N, grain_of(image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      elementwise_loops().transpose(d.C, d.pixels(), x + n * image, y + n * image);
    }
  });
}

void nhwc_to_nchw(ImageDims d, const float* x, float* y, Team& team) {
  const int64_t image = d.C * d.pixels();
  team.parallel_for(d.N, grain_of(image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      elementwise_loops().transpose(d.pixels(), d.C, x + n * image, y + n * image);
    }
  });
}

#define TRAINYARD_INSTANTIATE(F)                                             \
  template void activation_forward<F>(int64_t, const float*, float*, Team&); \
  template void activation_backward<F>(int64_t, const float*, const float*, float*, Team&);
TRAINYARD_INSTANTIATE(math::Relu)
TRAINYARD_INSTANTIATE(math::Sigmoid)
TRAINYARD_INSTANTIATE(math::Tanh)
TRAINYARD_INSTANTIATE(math::GeluErf)
TRAINYARD_INSTANTIATE(math::GeluTanh)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::cpu
