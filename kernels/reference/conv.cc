#include "kernels/conv.h"

namespace trainyard::kernels::reference {
namespace {

// Calls f(p, q, h, w) for each output pixel whose window cell (r, s) is inside the image, at pixel
// (h, w).
template <typename F>
void for_each_hit(const ConvDims& d, int64_t r, int64_t s, const F& f) {
  const Window& win = d.window;
  const int64_t P = win.P(d.x.H), Q = win.Q(d.x.W);
  for (int64_t p = 0; p < P; ++p) {
    const int64_t h = p * win.stride_h - win.pad_top + r * win.dilation_h;
    if (h < 0 || h >= d.x.H) continue;
    for (int64_t q = 0; q < Q; ++q) {
      const int64_t w = q * win.stride_w - win.pad_left + s * win.dilation_w;
      if (w < 0 || w >= d.x.W) continue;
      f(p, q, h, w);
    }
  }
}

// Returns the first channel that filter k reads.
int64_t first_channel(const ConvDims& d, int64_t k) {
  return k / (d.K / d.group) * d.group_channels();
}

// Returns the index of a weight. `c` is a channel of the image, in the group of filter k.
int64_t weight_index(const ConvDims& d, int64_t k, int64_t c, int64_t r, int64_t s) {
  const int64_t in_group = c - first_channel(d, k);
  return ((k * d.group_channels() + in_group) * d.window.R + r) * d.window.S + s;
}

}  // namespace

template <typename T>
void conv_forward(const ConvDims& d, const ImageStrides& xs, const T* x, const T* w, const T* b,
                  const ImageStrides& ys, T* y) {
  const Window& win = d.window;
  const int64_t P = win.P(d.x.H), Q = win.Q(d.x.W);
  for (int64_t n = 0; n < d.x.N; ++n) {
    for (int64_t k = 0; k < d.K; ++k) {
      for (int64_t p = 0; p < P; ++p) {
        for (int64_t q = 0; q < Q; ++q) y[ys.at(n, k, p, q)] = b != nullptr ? b[k] : T(0);
      }
      const int64_t first = first_channel(d, k);
      for (int64_t c = first; c < first + d.group_channels(); ++c) {
        for (int64_t r = 0; r < win.R; ++r) {
          for (int64_t s = 0; s < win.S; ++s) {
            const T wv = w[weight_index(d, k, c, r, s)];
            for_each_hit(d, r, s, [&](int64_t p, int64_t q, int64_t ih, int64_t iw) {
              y[ys.at(n, k, p, q)] += x[xs.at(n, c, ih, iw)] * wv;
            });
          }
        }
      }
    }
  }
}

template <typename T>
void conv_backward_data(const ConvDims& d, const ImageStrides& ys, const T* dy, const T* w,
                        const ImageStrides& xs, T* dx) {
  const Window& win = d.window;
  for (int64_t n = 0; n < d.x.N; ++n) {
    for (int64_t c = 0; c < d.x.C; ++c) {
      for (int64_t ih = 0; ih < d.x.H; ++ih) {
        for (int64_t iw = 0; iw < d.x.W; ++iw) dx[xs.at(n, c, ih, iw)] = T(0);
      }
      const int64_t filters = d.K / d.group, first = c / d.group_channels() * filters;
      for (int64_t k = first; k < first + filters; ++k) {
        for (int64_t r = 0; r < win.R; ++r) {
          for (int64_t s = 0; s < win.S; ++s) {
            const T wv = w[weight_index(d, k, c, r, s)];
            for_each_hit(d, r, s, [&](int64_t p, int64_t q, int64_t ih, int64_t iw) {
              dx[xs.at(n, c, ih, iw)] += dy[ys.at(n, k, p, q)] * wv;
            });
          }
        }
      }
    }
  }
}

template <typename T>
void conv_backward_weights(const ConvDims& d, const ImageStrides& xs, const T* x,
                           const ImageStrides& ys, const T* dy, T* dw, T* db) {
  const Window& win = d.window;
  const ImageDims y = d.y();
  for (int64_t k = 0; k < d.K; ++k) {
    if (db != nullptr) {
      T sum = T(0);
      for (int64_t n = 0; n < y.N; ++n) {
        for (int64_t p = 0; p < y.H; ++p) {
          for (int64_t q = 0; q < y.W; ++q) sum += dy[ys.at(n, k, p, q)];
        }
      }
      db[k] = sum;
    }
    if (dw == nullptr) continue;
    const int64_t first = first_channel(d, k);
    for (int64_t c = first; c < first + d.group_channels(); ++c) {
      for (int64_t r = 0; r < win.R; ++r) {
        for (int64_t s = 0; s < win.S; ++s) {
          T sum = T(0);
          for (int64_t n = 0; n < d.x.N; ++n) {
            for_each_hit(d, r, s, [&](int64_t p, int64_t q, int64_t ih, int64_t iw) {
              sum += dy[ys.at(n, k, p, q)] * x[xs.at(n, c, ih, iw)];
            });
          }
          dw[weight_index(d, k, c, r, s)] = sum;
        }
      }
    }
  }
}

#define INSTANTIATE(T)                                                                          \
  template void conv_forward<T>(const ConvDims&, const ImageStrides&, const T*, const T*,       \
                                const T*, const ImageStrides&, T*);                             \
  template void conv_backward_data<T>(const ConvDims&, const ImageStrides&, const T*, const T*, \
                                      const ImageStrides&, T*);                                 \
  template void conv_backward_weights<T>(const ConvDims&, const ImageStrides&, const T*,        \
                                         const ImageStrides&, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace trainyard::kernels::reference
