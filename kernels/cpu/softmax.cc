#include "kernels/softmax.h"

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Divides `outer` among threads; if inner > 1, each uses the reference loop.
template <typename F>
void by_outer(const SoftmaxDims& d, Team& team, const F& f) {
  const int64_t step = d.width * d.inner;
  team.parallel_for(d.outer, grain_of(16 * step), [&](int64_t begin, int64_t end) {
    SoftmaxDims part = d;
    part.outer = end - begin;
    f(part, begin * step);
  });
}

}  // namespace

void softmax_forward(const SoftmaxDims& d, const float* x, float* y, Run run) {
  check(d, x, y);
  by_outer(d, run.team, [&](const SoftmaxDims& part, int64_t at) {
    if (d.inner > 1) return reference::softmax_forward(part, x + at, y + at);
    for (int64_t n = 0; n < part.outer; ++n) {
      const int64_t row = at + n * d.width;
      float sum;
      if (d.log) {
        row_loops().log_softmax(d.width, x + row, y + row);
      } else {
        row_loops().softmax(d.width, x + row, y + row, &sum);
      }
    }
  });
}

void softmax_backward(const SoftmaxDims& d, const float* y, const float* dy, float* dx, Run run) {
  check(d, y, dy, dx);
  by_outer(d, run.team, [&](const SoftmaxDims& part, int64_t at) {
    if (d.inner > 1) return reference::softmax_backward(part, y + at, dy + at, dx + at);
    const auto loop = d.log ? row_loops().log_softmax_backward : row_loops().softmax_backward;
    for (int64_t n = 0; n < part.outer; ++n) {
      const int64_t row = at + n * d.width;
      loop(d.width, y + row, dy + row, dx + row);
    }
  });
}

}  // namespace trainyard::kernels::cpu
