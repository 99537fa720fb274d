#include "kernels/pool.h"

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Handles any strides by passing one image at a time to the reference loop. Plans normally use
// channels-last; this path serves row-major graphs and need not be fast.
template <typename F>
void per_image(const ImageDims& x, Team& team, const F& f) {
  team.parallel_for(x.N, grain_of(x.C * x.pixels()), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n);
  });
}

bool is_channels_last(const PoolDims& d, const PoolStrides& s) {
  return s.x.is_channels_last(d.x) && s.y.is_channels_last(d.y());
}

PoolDims one_image(PoolDims d) {
  d.x.N = 1;
  return d;
}

}  // namespace

void max_pool_forward(const PoolDims& d, const PoolStrides& s, const MaxPoolOperands<float>& o,
                      Run run) {
  check(d, o);
  if (is_channels_last(d, s)) {
    run.team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().max_forward(d, o.x, o.y, o.winner, begin, end);
    });
    return;
  }
  per_image(d.x, run.team, [&](int64_t n) {
    reference::max_pool_forward<float>(
        one_image(d), s,
        {.x = o.x + n * s.x.n,
         .y = o.y + n * s.y.n,
         .winner = o.winner == nullptr ? nullptr : o.winner + n * s.y.n},
        {});
  });
}

void max_pool_backward(const PoolDims& d, const PoolStrides& s, const MaxPoolGradOperands<float>& o,
                       Run run) {
  check(d, o);
  if (is_channels_last(d, s)) {
    run.team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().max_backward(d, o.x, o.winner, o.dy, o.dx, begin, end);
    });
    return;
  }
  per_image(d.x, run.team, [&](int64_t n) {
    reference::max_pool_backward<float>(
        one_image(d), s,
        {.x = o.x == nullptr ? nullptr : o.x + n * s.x.n,
         .winner = o.winner == nullptr ? nullptr : o.winner + n * s.y.n,
         .dy = o.dy + n * s.y.n,
         .dx = o.dx + n * s.x.n},
        {});
  });
}

void average_pool_forward(const PoolDims& d, const PoolStrides& s, const float* x, float* y,
                          Run run) {
  check_average(d.x, x, y);
  if (is_channels_last(d, s)) {
    run.team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().average_forward(d, x, y, begin, end);
    });
    return;
  }
  per_image(d.x, run.team, [&](int64_t n) {
    reference::average_pool_forward<float>(one_image(d), s, x + n * s.x.n, y + n * s.y.n, {});
  });
}

void average_pool_backward(const PoolDims& d, const PoolStrides& s, const float* dy, float* dx,
                           Run run) {
  check_average(d.x, dy, dx);
  if (is_channels_last(d, s)) {
    run.team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().average_backward(d, dy, dx, begin, end);
    });
    return;
  }
  per_image(d.x, run.team, [&](int64_t n) {
    reference::average_pool_backward<float>(one_image(d), s, dy + n * s.y.n, dx + n * s.x.n, {});
  });
}

void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const float* x,
                                 float* y, Run run) {
  check_average(d, x, y);
  if (xs.is_channels_last(d)) {
    run.team.parallel_for(d.N, grain_of(d.C * d.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().global_forward(d, x, y, begin, end);
    });
    return;
  }
  per_image(d, run.team, [&](int64_t n) {
    reference::global_average_pool_forward<float>({1, d.C, d.H, d.W}, xs, x + n * xs.n, y + n * d.C,
                                                  {});
  });
}

void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, const float* dy,
                                  float* dx, Run run) {
  check_average(d, dy, dx);
  if (xs.is_channels_last(d)) {
    run.team.parallel_for(d.N, grain_of(d.C * d.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().global_backward(d, dy, dx, begin, end);
    });
    return;
  }
  per_image(d, run.team, [&](int64_t n) {
    reference::global_average_pool_backward<float>({1, d.C, d.H, d.W}, xs, dy + n * d.C,
                                                   dx + n * xs.n, {});
  });
}

}  // namespace trainyard::kernels::cpu
