// Functions of two numbers over the runs of boxes (kernels/box.h).
#include "kernels/cpu/simd/arithmetic.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

// Calls body(a stride, b stride), where the usual strides are compile-time constants, so that each
// combination has its own vectorized loop.
template <typename Body>
void with_strides(int64_t a_stride, int64_t b_stride, const Body& body) {
  if (a_stride == 1 && b_stride == 1)
    return body([](int64_t i) { return i; }, [](int64_t i) { return i; });
  if (a_stride == 1 && b_stride == 0)
    return body([](int64_t i) { return i; }, [](int64_t) { return int64_t{0}; });
  if (a_stride == 0 && b_stride == 1)
    return body([](int64_t) { return int64_t{0}; }, [](int64_t i) { return i; });
  body([a_stride](int64_t i) { return i * a_stride; },
       [b_stride](int64_t i) { return i * b_stride; });
}

// `omp simd` promises that iterations are independent, which also holds in place.
template <typename F>
void forward(int64_t count, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
             float* y) {
  with_strides(a_stride, b_stride, [&](auto at_a, auto at_b) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = F::f(a[at_a(i)], b[at_b(i)]);
  });
}

template <typename F>
void backward(int64_t count, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              const float* dy, float* da, float* db) {
  with_strides(a_stride, b_stride, [&](auto at_a, auto at_b) {
    if (da != nullptr && db != nullptr) {  // both in one loop, since da or db may be dy
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const float slope = dy[i];
        const float slope_a = F::da(a[at_a(i)], b[at_b(i)], slope);
        db[i] = F::db(a[at_a(i)], b[at_b(i)], slope);
        da[i] = slope_a;
      }
    } else if (da != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) da[i] = F::da(a[at_a(i)], b[at_b(i)], dy[i]);
    } else if (db != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) db[i] = F::db(a[at_a(i)], b[at_b(i)], dy[i]);
    }
  });
}

}  // namespace

const ArithmeticLoops& TRAINYARD_VARIANT(arithmetic_loops)();
const ArithmeticLoops& TRAINYARD_VARIANT(arithmetic_loops)() {
  static constexpr ArithmeticLoops kLoops = {
#define TRAINYARD_ROW(F) forward<math::F>,
      TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_ROW)
#undef TRAINYARD_ROW
#define TRAINYARD_ROW(F) backward<math::F>,
          TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_ROW)
#undef TRAINYARD_ROW
  };
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
