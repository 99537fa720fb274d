#include "kernels/pool.h"

#include "kernels/math/activations.h"

namespace trainyard::kernels::reference {
namespace {

// One output pixel's window, clipped to the image.
struct Cells {
  int64_t h0, w0;  // position of the window's first cell; may be negative
  int64_t dilation_h, dilation_w;
  WindowRange r, s;
  int64_t h(int64_t r_index) const { return h0 + r_index * dilation_h; }
  int64_t w(int64_t s_index) const { return w0 + s_index * dilation_w; }
};

Cells cells_of(const PoolDims& d, int64_t p, int64_t q) {
  const Window& win = d.window;
  const int64_t h0 = p * win.stride_h - win.pad_top, w0 = q * win.stride_w - win.pad_left;
  return {h0,
          w0,
          win.dilation_h,
          win.dilation_w,
          window_range(h0, win.R, win.dilation_h, d.x.H),
          window_range(w0, win.S, win.dilation_w, d.x.W)};
}

template <typename F>
void for_each_output(const PoolDims& d, const F& f) {
  const ImageDims y = d.y();
  for (int64_t n = 0; n < y.N; ++n) {
    for (int64_t c = 0; c < y.C; ++c) {
      for (int64_t p = 0; p < y.H; ++p) {
        for (int64_t q = 0; q < y.W; ++q) f(n, c, p, q);
      }
    }
  }
}

template <typename T>
void fill_zero(const ImageDims& d, const ImageStrides& s, T* x) {
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t c = 0; c < d.C; ++c) {
      for (int64_t h = 0; h < d.H; ++h) {
        for (int64_t w = 0; w < d.W; ++w) x[s.at(n, c, h, w)] = T(0);
      }
    }
  }
}

struct Winner {
  int64_t at;    // offset in x
  int64_t cell;  // number of the cell in the window, r * S + s
};
// Returns the first maximum of the window; a NaN replaces all candidates before it.
template <typename T>
Winner argmax(const PoolDims& d, const Cells& cells, const ImageStrides& xs, int64_t n, int64_t c,
              const T* x) {
  const auto of = [&](int64_t r, int64_t s) {
    return Winner{xs.at(n, c, cells.h(r), cells.w(s)), r * d.window.S + s};
  };
  Winner best = of(cells.r.begin, cells.s.begin);
  for (int64_t r = cells.r.begin; r < cells.r.end; ++r) {
    for (int64_t s = cells.s.begin; s < cells.s.end; ++s) {
      const Winner w = of(r, s);
      if (x[w.at] > x[best.at] || x[w.at] != x[w.at]) best = w;
    }
  }
  return best;
}

template <typename T>
T divisor(const PoolDims& d, const Cells& cells) {
  const int64_t inside = (cells.r.end - cells.r.begin) * (cells.s.end - cells.s.begin);
  return static_cast<T>(d.count_include_pad ? d.window.R * d.window.S : inside);
}

}  // namespace

template <typename T>
void max_pool_forward(const PoolDims& d, const PoolStrides& strides, const MaxPoolOperands<T>& o,
                      Run<T>) {
  check(d, o);
  for_each_output(d, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
    const Winner w = argmax(d, cells_of(d, p, q), strides.x, n, c, o.x);
    const T most = d.relu ? math::Relu::f(o.x[w.at]) : o.x[w.at];
    const bool is_none = d.relu && most <= T(0);
    const int64_t to = strides.y.at(n, c, p, q);
    o.y[to] = most;
    if (o.winner != nullptr) o.winner[to] = is_none ? kNoCell : static_cast<uint8_t>(w.cell);
  });
}

template <typename T>
void max_pool_backward(const PoolDims& d, const PoolStrides& strides,
                       const MaxPoolGradOperands<T>& o, Run<T>) {
  check(d, o);
  fill_zero(d.x, strides.x, o.dx);
  for_each_output(d, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
    const Cells cells = cells_of(d, p, q);
    const int64_t from = strides.y.at(n, c, p, q);
    int64_t to;
    if (o.winner != nullptr) {
      const int64_t cell = o.winner[from];
      if (d.relu && cell == kNoCell) return;
      to = strides.x.at(n, c, cells.h(cell / d.window.S), cells.w(cell % d.window.S));
    } else {
      to = argmax(d, cells, strides.x, n, c, o.x).at;
    }
    o.dx[to] += o.dy[from];
  });
}

template <typename T>
void average_pool_forward(const PoolDims& d, const PoolStrides& strides, const T* x, T* y, Run<T>) {
  check_average(d.x, x, y);
  for_each_output(d, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
    const Cells cells = cells_of(d, p, q);
    T sum = T(0);
    for (int64_t r = cells.r.begin; r < cells.r.end; ++r) {
      for (int64_t s = cells.s.begin; s < cells.s.end; ++s) {
        sum += x[strides.x.at(n, c, cells.h(r), cells.w(s))];
      }
    }
    y[strides.y.at(n, c, p, q)] = sum / divisor<T>(d, cells);
  });
}

template <typename T>
void average_pool_backward(const PoolDims& d, const PoolStrides& strides, const T* dy, T* dx,
                           Run<T>) {
  check_average(d.x, dy, dx);
  fill_zero(d.x, strides.x, dx);
  for_each_output(d, [&](int64_t n, int64_t c, int64_t p, int64_t q) {
    const Cells cells = cells_of(d, p, q);
    const T share = dy[strides.y.at(n, c, p, q)] / divisor<T>(d, cells);
    for (int64_t r = cells.r.begin; r < cells.r.end; ++r) {
      for (int64_t s = cells.s.begin; s < cells.s.end; ++s) {
        dx[strides.x.at(n, c, cells.h(r), cells.w(s))] += share;
      }
    }
  });
}

template <typename T>
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const T* x, T* y,
                                 Run<T>) {
  check_average(d, x, y);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t c = 0; c < d.C; ++c) {
      T sum = T(0);
      for (int64_t h = 0; h < d.H; ++h) {
        for (int64_t w = 0; w < d.W; ++w) sum += x[xs.at(n, c, h, w)];
      }
      y[n * d.C + c] = sum / static_cast<T>(d.pixels());
    }
  }
}

template <typename T>
void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, const T* dy, T* dx,
                                  Run<T>) {
  check_average(d, dy, dx);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t c = 0; c < d.C; ++c) {
      const T share = dy[n * d.C + c] / static_cast<T>(d.pixels());
      for (int64_t h = 0; h < d.H; ++h) {
        for (int64_t w = 0; w < d.W; ++w) dx[xs.at(n, c, h, w)] = share;
      }
    }
  }
}

#define INSTANTIATE(T)                                                                           \
  template void max_pool_forward<T>(const PoolDims&, const PoolStrides&,                         \
                                    const MaxPoolOperands<T>&, Run<T>);                          \
  template void max_pool_backward<T>(const PoolDims&, const PoolStrides&,                        \
                                     const MaxPoolGradOperands<T>&, Run<T>);                     \
  template void average_pool_forward<T>(const PoolDims&, const PoolStrides&, const T*, T*,       \
                                        Run<T>);                                                 \
  template void average_pool_backward<T>(const PoolDims&, const PoolStrides&, const T*, T*,      \
                                         Run<T>);                                                \
  template void global_average_pool_forward<T>(const ImageDims&, const ImageStrides&, const T*,  \
                                               T*, Run<T>);                                      \
  template void global_average_pool_backward<T>(const ImageDims&, const ImageStrides&, const T*, \
                                                T*, Run<T>);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace trainyard::kernels::reference
