// Access   with inner = 1, a warp or a block processes a row: one pass computes the maximum and the
//          sum, and the second pass hits the L1 cache. Else a thread processes a whole vector of
//          `width` elements, adjacent threads adjacent elements. forward 8 B an element (4 in
//          bf16), backward 12 B (6).
// Time     bytes / 4.8 TB/s on an H200: [65536, 1024] in F32 in 112 us forward, 168 us backward.
#include "kernels/softmax.h"

#include "kernels/cuda/row.h"
#include "kernels/cuda/running_softmax.h"

namespace trainyard::kernels::cuda {
namespace {

template <bool kBlock, int kStep>
TRAINYARD_KERNEL void forward_rows(int64_t rows, int64_t width, bool log, In x, Out y) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In x_row = x + row * width;
    RunningSoftmax s;
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      for (const float e : load<kStep>(x_row, i).v) s.add(e);
    });
    const float max = Threads::reduce(s.max, Max());
    const float sum = Threads::reduce(s.sum_below(max), Sum());
    const float log_sum = math::log(sum);
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(x_row, i);
      for (float& e : v.v) e = log ? e - max - log_sum : math::exp(e - max) / sum;
      store<kStep>(y + row * width, i, v);
    });
  }
}

template <bool kBlock, int kStep>
TRAINYARD_KERNEL void backward_rows(int64_t rows, int64_t width, bool log, In y, In dy, Out dx) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In y_row = y + row * width, dy_row = dy + row * width;
    float sum = 0;
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      const Pack<kStep> d = load<kStep>(dy_row, i), v = load<kStep>(y_row, i);
      for (int k = 0; k < kStep; ++k) sum += log ? d.v[k] : d.v[k] * v.v[k];
    });
    sum = Threads::reduce(sum, Sum());
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(y_row, i);
      Pack<kStep> d = load<kStep>(dy_row, i);
      for (int k = 0; k < kStep; ++k) {
        d.v[k] = log ? d.v[k] - math::exp(v.v[k]) * sum : v.v[k] * (d.v[k] - sum);
      }
      store<kStep>(dx + row * width, i, d);
    });
  }
}

TRAINYARD_KERNEL void forward_spans(SoftmaxDims d, In x, Out y) {
  for (int64_t span = thread_index(); span < d.outer * d.inner; span += thread_count()) {
    const int64_t first = span / d.inner * d.width * d.inner + span % d.inner;
    RunningSoftmax s;
    for (int64_t k = 0; k < d.width; ++k) s.add(x[first + k * d.inner]);
    const float log_sum = math::log(s.sum);
    for (int64_t k = 0; k < d.width; ++k) {
      const float shifted = x[first + k * d.inner] - s.max;
      y.set(first + k * d.inner, d.log ? shifted - log_sum : math::exp(shifted) / s.sum);
    }
  }
}

TRAINYARD_KERNEL void backward_spans(SoftmaxDims d, In y, In dy, Out dx) {
  for (int64_t span = thread_index(); span < d.outer * d.inner; span += thread_count()) {
    const int64_t first = span / d.inner * d.width * d.inner + span % d.inner;
    float sum = 0;
    for (int64_t k = 0; k < d.width; ++k) {
      const int64_t i = first + k * d.inner;
      sum += d.log ? dy[i] : dy[i] * y[i];
    }
    for (int64_t k = 0; k < d.width; ++k) {
      const int64_t i = first + k * d.inner;
      dx.set(i, d.log ? dy[i] - math::exp(y[i]) * sum : y[i] * (dy[i] - sum));
    }
  }
}

}  // namespace

void softmax_forward(const SoftmaxDims& d, In x, Out y, Run run) {
  check(d, x, y);
  if (d.inner != 1) {
    launch(grid_for(d.outer * d.inner), run.stream, forward_spans, d, x, y);
    return;
  }
  const bool fours = d.width % 4 == 0 && takes_four(x) && takes_four(y);
  with_rows(d.outer, d.width, fours, [&](auto block, auto step, const Grid& grid) {
    launch(grid, run.stream, forward_rows<block.value, step.value>, d.outer, d.width, d.log, x, y);
  });
}

void softmax_backward(const SoftmaxDims& d, In y, In dy, Out dx, Run run) {
  check(d, y, dy, dx);
  if (d.inner != 1) {
    launch(grid_for(d.outer * d.inner), run.stream, backward_spans, d, y, dy, dx);
    return;
  }
  const bool fours = d.width % 4 == 0 && takes_four(y) && takes_four(dy) && takes_four(dx);
  with_rows(d.outer, d.width, fours, [&](auto block, auto step, const Grid& grid) {
    launch(grid, run.stream, backward_rows<block.value, step.value>, d.outer, d.width, d.log, y, dy,
           dx);
  });
}

}  // namespace trainyard::kernels::cuda
