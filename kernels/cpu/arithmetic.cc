#include "kernels/arithmetic.h"

#include "kernels/cpu/simd/arithmetic.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

template <typename F>
ArithmeticLoop loop_of();
#define TRAINYARD_LOOP(F)             \
  template <>                         \
  ArithmeticLoop loop_of<math::F>() { \
    return arithmetic_loops().F;      \
  }
TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_LOOP)
#undef TRAINYARD_LOOP

template <typename F>
ArithmeticGradLoop grad_loop_of();
#define TRAINYARD_LOOP(F)                      \
  template <>                                  \
  ArithmeticGradLoop grad_loop_of<math::F>() { \
    return arithmetic_loops().F##Grad;         \
  }
TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_LOOP)
#undef TRAINYARD_LOOP

// The minimum number of elements per thread; powers are calls of the C library, which are slow.
template <typename F>
constexpr int64_t kGrain = kElementsPerThread;
template <>
constexpr int64_t kGrain<math::Pow> = kElementsPerThread / 64;

}  // namespace

template <typename F>
void arithmetic(const Box<3>& box, const float* a, const float* b, float* y, Run run) {
  check_arithmetic(a, b, y);
  const Box<3>::Offsets stride = box.run_stride();
  const ArithmeticLoop loop = loop_of<F>();
  run.team.parallel_for(box.elements(), kGrain<F>, [&](int64_t begin, int64_t end) {
    box.for_each_run(begin, end, [&](const Box<3>::Offsets& at, int64_t count) {
      loop(count, a + at[0], stride[0], b + at[1], stride[1], y + at[2]);
    });
  });
}

template <typename F>
void arithmetic_grad(const Box<3>& box, const float* a, const float* b, const float* dy, float* da,
                     float* db, Run run) {
  check_arithmetic_grad(a, b, dy);
  const Box<3>::Offsets stride = box.run_stride();
  const ArithmeticGradLoop loop = grad_loop_of<F>();
  run.team.parallel_for(box.elements(), kGrain<F>, [&](int64_t begin, int64_t end) {
    box.for_each_run(begin, end, [&](const Box<3>::Offsets& at, int64_t count) {
      loop(count, a + at[0], stride[0], b + at[1], stride[1], dy + at[2],
           da == nullptr ? nullptr : da + at[2], db == nullptr ? nullptr : db + at[2]);
    });
  });
}

#define TRAINYARD_INSTANTIATE(F) \
  template void arithmetic<math::F>(const Box<3>&, const float*, const float*, float*, Run);
TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE
#define TRAINYARD_INSTANTIATE(F)                                                                  \
  template void arithmetic_grad<math::F>(const Box<3>&, const float*, const float*, const float*, \
                                         float*, float*, Run);
TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::cpu
