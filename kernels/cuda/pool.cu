// Access   a thread for each element that is written, neighbours along its innermost axis:
//          channels of an image in channels-last, columns of one in row-major. A window's cells
//          come from the caches after the first that reads them. Backward gathers too: each
//          element of dx looks at the windows that cover it, so nothing is added by two threads.
//          Which cell is a window's maximum is found once, in a first launch that leaves it in
//          the workspace. Max forward 4 B an element of x and of y (2 in bf16), backward 8 B of x
//          and 12 B of y.
// Time     bytes / 4.8 TB/s on an H200: 3 x 3, stride 2, of [256, 64, 112, 112] in 0.22 ms
//          forward and 0.48 ms backward, in F32.
#include "kernels/pool.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"

namespace trainyard::kernels::cuda {
namespace {

/// An image's elements, walked as they lie.
struct Pixels {
  int64_t count = 0;
  bool channels_last = false;
  Divisor C, H, W;
  ImageStrides stride{};
  Pixels(const ImageDims& d, const ImageStrides& s)
      : count(d.elements()),
        channels_last(s.is_channels_last(d)),
        C(d.C),
        H(d.H),
        W(d.W),
        stride(s) {}
  struct Place {
    int64_t n, c, h, w;
  };
  TRAINYARD_HD static int64_t take(int64_t& index, const Divisor& size) {
    const int64_t rest = size.quotient(index), last = index - rest * size.value;
    index = rest;
    return last;
  }
  TRAINYARD_HD Place place(int64_t index) const {
    Place p{};
    if (channels_last) p.c = take(index, C);
    p.w = take(index, W);
    p.h = take(index, H);
    if (!channels_last) p.c = take(index, C);
    p.n = index;
    return p;
  }
  TRAINYARD_HD int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * stride.n + c * stride.c + h * stride.h + w * stride.w;
  }
};

struct Pool {
  PoolDims d;
  Pixels x, y;
  Pool(const PoolDims& dims, const ImageStrides& xs, const ImageStrides& ys)
      : d(dims), x(dims.x, xs), y(dims.y(), ys) {}

  TRAINYARD_HD int64_t top(int64_t p) const { return p * d.window.stride_h - d.window.pad_top; }
  TRAINYARD_HD int64_t left(int64_t q) const { return q * d.window.stride_w - d.window.pad_left; }
  /// Calls f(place in x, number of the cell) for the cells inside the image, in order. Returns how
  /// many there are.
  template <typename F>
  TRAINYARD_HD int64_t for_cells(const Pixels::Place& o, const F& f) const {
    const Window& win = d.window;
    const int64_t h0 = top(o.h), w0 = left(o.w);
    const WindowRange r = window_range(h0, win.R, win.dilation_h, d.x.H);
    const WindowRange s = window_range(w0, win.S, win.dilation_w, d.x.W);
    for (int64_t i = r.begin; i < r.end; ++i) {
      for (int64_t j = s.begin; j < s.end; ++j) {
        f(x.at(o.n, o.c, h0 + i * win.dilation_h, w0 + j * win.dilation_w),
          static_cast<int32_t>(i * win.S + j));
      }
    }
    return (r.end - r.begin) * (s.end - s.begin);
  }

  struct Range {
    int64_t begin, end;
  };
  /// Windows whose span of `span` cells from begin * stride on meets `at`.
  TRAINYARD_HD static Range covering(int64_t at, int64_t span, int64_t stride, int64_t windows) {
    const int64_t first = at - span + 1;
    const int64_t begin = first <= 0 ? 0 : (first + stride - 1) / stride, last = at / stride + 1;
    return {begin, last < windows ? last : windows};
  }
  /// Calls f(n, c, p, q, number of the cell) for the windows that have this element as a cell.
  template <typename F>
  TRAINYARD_HD void for_windows(const Pixels::Place& e, const F& f) const {
    const Window& win = d.window;
    const int64_t h = e.h + win.pad_top, w = e.w + win.pad_left;
    const Range ps = covering(h, win.height(), win.stride_h, y.H.value);
    const Range qs = covering(w, win.width(), win.stride_w, y.W.value);
    for (int64_t p = ps.begin; p < ps.end; ++p) {
      const int64_t down = h - p * win.stride_h;
      if (win.dilation_h != 1 && down % win.dilation_h != 0) continue;
      for (int64_t q = qs.begin; q < qs.end; ++q) {
        const int64_t across = w - q * win.stride_w;
        if (win.dilation_w != 1 && across % win.dilation_w != 0) continue;
        f(p, q, static_cast<int32_t>(down / win.dilation_h * win.S + across / win.dilation_w));
      }
    }
  }
  /// The first maximum, but a NaN replaces what was found before it.
  TRAINYARD_HD int32_t winner(const Pixels::Place& o, const In& values, float* value) const {
    int32_t best = -1;
    float most = 0;
    for_cells(o, [&](int64_t at, int32_t cell) {
      const float v = values[at];
      if (best < 0 || v > most || v != v) {
        best = cell;
        most = v;
      }
    });
    *value = most;
    return best;
  }
  TRAINYARD_HD float divisor(int64_t inside) const {
    return static_cast<float>(d.count_include_pad ? d.window.R * d.window.S : inside);
  }
};

TRAINYARD_KERNEL void max_forward(Pool pool, In x, Out y) {
  for (int64_t i = thread_index(); i < pool.y.count; i += thread_count()) {
    float most;
    pool.winner(pool.y.place(i), x, &most);
    y.set(i, most);
  }
}

TRAINYARD_KERNEL void find_winners(Pool pool, In x, int32_t* winner) {
  for (int64_t i = thread_index(); i < pool.y.count; i += thread_count()) {
    float most;
    winner[i] = pool.winner(pool.y.place(i), x, &most);
  }
}

TRAINYARD_KERNEL void max_backward(Pool pool, const int32_t* winner, In dy, Out dx) {
  for (int64_t i = thread_index(); i < pool.x.count; i += thread_count()) {
    const Pixels::Place e = pool.x.place(i);
    float sum = 0;
    pool.for_windows(e, [&](int64_t p, int64_t q, int32_t cell) {
      const int64_t at = pool.y.at(e.n, e.c, p, q);
      if (winner[at] == cell) sum += dy[at];
    });
    dx.set(i, sum);
  }
}

TRAINYARD_KERNEL void average_forward(Pool pool, In x, Out y) {
  for (int64_t i = thread_index(); i < pool.y.count; i += thread_count()) {
    float sum = 0;
    const int64_t inside =
        pool.for_cells(pool.y.place(i), [&](int64_t at, int32_t) { sum += x[at]; });
    y.set(i, sum / pool.divisor(inside));
  }
}

TRAINYARD_KERNEL void average_backward(Pool pool, In dy, Out dx) {
  const Window& win = pool.d.window;
  for (int64_t i = thread_index(); i < pool.x.count; i += thread_count()) {
    const Pixels::Place e = pool.x.place(i);
    float sum = 0;
    pool.for_windows(e, [&](int64_t p, int64_t q, int32_t) {
      const WindowRange r = window_range(pool.top(p), win.R, win.dilation_h, pool.d.x.H);
      const WindowRange s = window_range(pool.left(q), win.S, win.dilation_w, pool.d.x.W);
      sum += dy[pool.y.at(e.n, e.c, p, q)] / pool.divisor((r.end - r.begin) * (s.end - s.begin));
    });
    dx.set(i, sum);
  }
}

/// Operand 0 of `kept` is the image, operand 1 [N, C].
ReduceParams pixel_means(const ImageDims& d, const ImageStrides& xs) {
  ReduceParams p;
  p.kept.append(d.N, {xs.n, d.C});
  p.kept.append(d.C, {xs.c, 1});
  p.reduced.append(d.H, {xs.h});
  p.reduced.append(d.W, {xs.w});
  p.factor = 1 / static_cast<double>(d.pixels());
  return p;
}

}  // namespace

void max_pool_forward(const PoolDims& d, const ImageStrides& xs, In x, const ImageStrides& ys,
                      Out y, CUstream_st* stream) {
  const Pool pool(d, xs, ys);
  launch(grid_for(pool.y.count), stream, max_forward, pool, x, y);
}

int64_t max_pool_backward_workspace_bytes(const PoolDims& d) {
  return d.y().elements() * static_cast<int64_t>(sizeof(int32_t));
}

void max_pool_backward(const PoolDims& d, const ImageStrides& xs, In x, const ImageStrides& ys,
                       In dy, Out dx, void* workspace, CUstream_st* stream) {
  const Pool pool(d, xs, ys);
  auto* winner = static_cast<int32_t*>(workspace);
  launch(grid_for(pool.y.count), stream, find_winners, pool, x, winner);
  launch(grid_for(pool.x.count), stream, max_backward, pool, winner, dy, dx);
}

void average_pool_forward(const PoolDims& d, const ImageStrides& xs, In x, const ImageStrides& ys,
                          Out y, CUstream_st* stream) {
  const Pool pool(d, xs, ys);
  launch(grid_for(pool.y.count), stream, average_forward, pool, x, y);
}

void average_pool_backward(const PoolDims& d, const ImageStrides& ys, In dy, const ImageStrides& xs,
                           Out dx, CUstream_st* stream) {
  const Pool pool(d, xs, ys);
  launch(grid_for(pool.x.count), stream, average_backward, pool, dy, dx);
}

int64_t global_average_pool_workspace_bytes(const ImageDims& d, const ImageStrides& xs) {
  return reduce_workspace_bytes(pixel_means(d, xs));
}

void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, In x, Out y,
                                 void* workspace, CUstream_st* stream) {
  reduce(pixel_means(d, xs), x, y, workspace, stream);
}

void global_average_pool_backward(const ImageDims& d, In dy, const ImageStrides& xs, Out dx,
                                  CUstream_st* stream) {
  Box<2> box;
  box.append(d.N, {d.C, xs.n});
  if (xs.is_channels_last(d)) {
    box.append(d.pixels(), {0, xs.w});
    box.append(d.C, {1, xs.c});
  } else {
    box.append(d.C, {1, xs.c});
    box.append(d.pixels(), {0, xs.w});
  }
  scale(box, 1 / static_cast<double>(d.pixels()), dy, dx, stream);
}

}  // namespace trainyard::kernels::cuda
