#include "kernels/pool.h"

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Any strides: hands the reference loop one image at a time. Channels-last is what the plan gives;
// this path serves row-major graphs and need not be fast.
template <typename F>
void per_image(const ImageDims& x, Team& team, const F& f) {
  team.parallel_for(x.N, grain_of(x.C * x.pixels()), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n);
  });
}

PoolDims one_image(PoolDims d) {
  d.x.N = 1;
  return d;
}

}  // namespace

void max_pool_forward(const PoolDims& d, const ImageStrides& xs, const float* x,
                      const ImageStrides& ys, float* y, uint8_t* winner, Team& team) {
  if (xs.is_channels_last(d.x) && ys.is_channels_last(d.y())) {
    team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().max_forward(d, x, y, winner, begin, end);
    });
    return;
  }
  per_image(d.x, team, [&](int64_t n) {
    reference::max_pool_forward<float>(one_image(d), xs, x + n * xs.n, ys, y + n * ys.n,
                                       winner == nullptr ? nullptr : winner + n * ys.n);
  });
}

void max_pool_backward(const PoolDims& d, const ImageStrides& xs, const float* x,
                       const uint8_t* winner, const ImageStrides& ys, const float* dy, float* dx,
                       Team& team) {
  if (xs.is_channels_last(d.x) && ys.is_channels_last(d.y())) {
    team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().max_backward(d, x, winner, dy, dx, begin, end);
    });
    return;
  }
  per_image(d.x, team, [&](int64_t n) {
    reference::max_pool_backward<float>(one_image(d), xs, x == nullptr ? nullptr : x + n * xs.n,
                                        winner == nullptr ? nullptr : winner + n * ys.n, ys,
                                        dy + n * ys.n, dx + n * xs.n);
  });
}

void average_pool_forward(const PoolDims& d, const ImageStrides& xs, const float* x,
                          const ImageStrides& ys, float* y, Team& team) {
  if (xs.is_channels_last(d.x) && ys.is_channels_last(d.y())) {
    team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().average_forward(d, x, y, begin, end);
    });
    return;
  }
  per_image(d.x, team, [&](int64_t n) {
    reference::average_pool_forward<float>(one_image(d), xs, x + n * xs.n, ys, y + n * ys.n);
  });
}

void average_pool_backward(const PoolDims& d, const ImageStrides& ys, const float* dy,
                           const ImageStrides& xs, float* dx, Team& team) {
  if (xs.is_channels_last(d.x) && ys.is_channels_last(d.y())) {
    team.parallel_for(d.x.N, grain_of(d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().average_backward(d, dy, dx, begin, end);
    });
    return;
  }
  per_image(d.x, team, [&](int64_t n) {
    reference::average_pool_backward<float>(one_image(d), ys, dy + n * ys.n, xs, dx + n * xs.n);
  });
}

void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const float* x,
                                 float* y, Team& team) {
  if (xs.is_channels_last(d)) {
    team.parallel_for(d.N, grain_of(d.C * d.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().global_forward(d, x, y, begin, end);
    });
    return;
  }
  per_image(d, team, [&](int64_t n) {
    reference::global_average_pool_forward<float>({1, d.C, d.H, d.W}, xs, x + n * xs.n,
                                                  y + n * d.C);
  });
}

void global_average_pool_backward(const ImageDims& d, const float* dy, const ImageStrides& xs,
                                  float* dx, Team& team) {
  if (xs.is_channels_last(d)) {
    team.parallel_for(d.N, grain_of(d.C * d.pixels()), [&](int64_t begin, int64_t end) {
      pool_loops().global_backward(d, dy, dx, begin, end);
    });
    return;
  }
  per_image(d, team, [&](int64_t n) {
    reference::global_average_pool_backward<float>({1, d.C, d.H, d.W}, dy + n * d.C, xs,
                                                   dx + n * xs.n);
  });
}

}  // namespace trainyard::kernels::cpu
