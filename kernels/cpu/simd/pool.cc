// Channels-last pooling: a cell of the window is C contiguous floats, so every loop runs over C.
#include <cstring>

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kChunk = 64;  // channels whose running maximum is kept on the stack

// Returns whether x replaces the maximum found so far: a larger number does, and so does any NaN
// (kernels/pool.h).
inline __attribute__((always_inline)) bool beats(float x, float best) {
  return (x > best) | (x != x);
}

// for_channels() calls f(c, Lanes) for vectors of 16, 8 and 4 channels and then single channels.
// With few channels, such as 20, the remainder loop of a compiler would take longer than the
// vectors. Vec is a GCC vector, no wider than the instruction set's registers, since a wider one
// would be kept in memory.
template <int kLanes>
struct Lanes {
  typedef float Vec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
  typedef int32_t Mask __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
  static inline __attribute__((always_inline)) Vec load(const float* p) {
    return *reinterpret_cast<const Vec*>(p);
  }
  static inline __attribute__((always_inline)) void store(float* p, const Vec& v) {
    *reinterpret_cast<Vec*>(p) = v;
  }
  static inline __attribute__((always_inline)) Mask load_cells(const uint8_t* p) {
    int32_t cells[kLanes];
#pragma omp simd
    for (int k = 0; k < kLanes; ++k) cells[k] = p[k];
    return *reinterpret_cast<const Mask*>(cells);
  }
  static inline __attribute__((always_inline)) void store_cells(uint8_t* p, const Mask& which) {
    int32_t cells[kLanes];
    *reinterpret_cast<Mask*>(cells) = which;
#pragma omp simd
    for (int k = 0; k < kLanes; ++k) p[k] = static_cast<uint8_t>(cells[k]);
  }
  // Applies ReLU as math::Relu does, which propagates NaN; a channel set to 0 gets the winner
  // kNoCell.
  static inline __attribute__((always_inline)) void apply_relu(Vec& best, Mask& which) {
    const Vec zero = {};
    best = best < zero ? zero : best;
    which |= static_cast<Mask>(best <= zero) & int32_t{kNoCell};
  }
};
template <typename F>
inline __attribute__((always_inline)) void for_channels(int64_t C, const F& f) {
  int64_t c = 0;
#ifdef __AVX512F__
  for (; c + 16 <= C; c += 16) f(c, Lanes<16>());
#endif
#ifdef __AVX__
  for (; c + 8 <= C; c += 8) f(c, Lanes<8>());
#endif
  for (; c + 4 <= C; c += 4) f(c, Lanes<4>());
  for (; c < C; ++c) f(c, Lanes<1>());
}

struct Cells {
  int64_t h0, w0, r_begin, r_end, s_begin, s_end;
};
// first_inside() and end_inside() compute window_range() of kernels/image.h.
inline __attribute__((always_inline)) int64_t first_inside(int64_t start, int64_t dilation) {
  return start < 0 ? (dilation - 1 - start) / dilation : 0;
}
inline __attribute__((always_inline)) int64_t end_inside(int64_t start, int64_t count,
                                                         int64_t dilation, int64_t size) {
  const int64_t inside = start < size ? (size - start + dilation - 1) / dilation : 0;
  return inside < count ? inside : count;
}
inline __attribute__((always_inline)) Cells cells_of(const PoolDims& d, int64_t p, int64_t q) {
  const Window& win = d.window;
  const int64_t h0 = p * win.stride_h - win.pad_top, w0 = q * win.stride_w - win.pad_left;
  return {h0,
          w0,
          first_inside(h0, win.dilation_h),
          end_inside(h0, win.R, win.dilation_h, d.x.H),
          first_inside(w0, win.dilation_w),
          end_inside(w0, win.S, win.dilation_w, d.x.W)};
}
// Returns the offset of the window's cell (r, s) in its image.
inline __attribute__((always_inline)) int64_t cell_at(const PoolDims& d, const Cells& k, int64_t r,
                                                      int64_t s) {
  return ((k.h0 + r * d.window.dilation_h) * d.x.W + k.w0 + s * d.window.dilation_w) * d.x.C;
}

struct Sizes {
  int64_t P, Q, x_image, y_image;
};
inline __attribute__((always_inline)) Sizes sizes_of(const PoolDims& d) {
  const Window& w = d.window;
  const int64_t P =
      (d.x.H + w.pad_top + w.pad_bottom - (w.R - 1) * w.dilation_h - 1) / w.stride_h + 1;
  const int64_t Q =
      (d.x.W + w.pad_left + w.pad_right - (w.S - 1) * w.dilation_w - 1) / w.stride_w + 1;
  return {P, Q, d.x.H * d.x.W * d.x.C, P * Q * d.x.C};
}

// Returns whether the windows tile the image: every pixel then belongs to at most one window, so
// that dx can be assigned instead of accumulated.
inline __attribute__((always_inline)) bool is_2x2_tiling(const Window& w) {
  return w.R == 2 && w.S == 2 && w.stride_h == 2 && w.stride_w == 2 && w.pad_top == 0 &&
         w.pad_left == 0 && w.pad_bottom == 0 && w.pad_right == 0 && w.dilation_h == 1 &&
         w.dilation_w == 1;
}

// winner may be nullptr.
void max_2x2(const PoolDims& d, const Sizes& z, const float* x, float* y, uint8_t* winner) {
  const int64_t C = d.x.C, row = d.x.W * C;
  for (int64_t p = 0; p < z.P; ++p) {
    for (int64_t q = 0; q < z.Q; ++q) {
      const float* a = x + 2 * p * row + 2 * q * C;
      const float* b = a + row;
      const int64_t at = (p * z.Q + q) * C;
      for_channels(
          C, [&]<typename L>(int64_t c, L) __attribute__((always_inline)) {
            auto best = L::load(a + c);
            typename L::Mask which = {};
            const auto take = [&](const float* cell, int32_t number)
                __attribute__((always_inline)) {
              const auto v = L::load(cell);
              const typename L::Mask wins = (v > best) | (v != v);
              best = wins ? v : best;
              which = (wins & number) | (~wins & which);
            };
            take(a + C + c, 1);
            take(b + c, 2);
            take(b + C + c, 3);
            if (d.relu) L::apply_relu(best, which);
            L::store(y + at + c, best);
            if (winner != nullptr) L::store_cells(winner + at + c, which);
          });
    }
  }
}

// Finds the maximum of one window, and the number of its cell, for `count` channels from c0 on.
void find_winners(const PoolDims& d, const Cells& k, int64_t c0, int64_t count, const float* image,
                  float* best, int32_t* which) {
  const float* first = image + cell_at(d, k, k.r_begin, k.s_begin) + c0;
  const auto number = [&](int64_t r, int64_t s) {
    return static_cast<int32_t>(r * d.window.S + s);
  };
  for (int64_t c = 0; c < count; ++c) {
    best[c] = first[c];
    which[c] = number(k.r_begin, k.s_begin);
  }
  for (int64_t r = k.r_begin; r < k.r_end; ++r) {
    for (int64_t s = k.s_begin; s < k.s_end; ++s) {
      const float* cell = image + cell_at(d, k, r, s) + c0;
      const int32_t index = number(r, s);
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) {
        which[c] = beats(cell[c], best[c]) ? index : which[c];
        best[c] = beats(cell[c], best[c]) ? cell[c] : best[c];
      }
    }
  }
}

// Calls f(first channel, channels) for chunks of channels.
template <typename F>
inline __attribute__((always_inline)) void for_chunks(int64_t C, const F& f) {
  for (int64_t c0 = 0; c0 < C; c0 += kChunk) f(c0, C - c0 < kChunk ? C - c0 : kChunk);
}

void max_window(const PoolDims& d, const Cells& k, const float* image, float* out) {
  const int64_t C = d.x.C;
  std::memcpy(out, image + cell_at(d, k, k.r_begin, k.s_begin),
              static_cast<size_t>(C) * sizeof(float));
  for (int64_t r = k.r_begin; r < k.r_end; ++r) {
    for (int64_t s = k.s_begin; s < k.s_end; ++s) {
      const float* cell = image + cell_at(d, k, r, s);
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) out[c] = beats(cell[c], out[c]) ? cell[c] : out[c];
    }
  }
  if (!d.relu) return;
#pragma omp simd
  for (int64_t c = 0; c < C; ++c) out[c] = out[c] < 0 ? 0 : out[c];
}

void max_window_and_winner(const PoolDims& d, const Cells& k, const float* image, float* out,
                           uint8_t* winner) {
  const float* const first = image + cell_at(d, k, k.r_begin, k.s_begin);
  const int64_t down = d.window.dilation_h * d.x.W * d.x.C, across = d.window.dilation_w * d.x.C;
  for_channels(
      d.x.C, [&]<typename L>(int64_t c, L) __attribute__((always_inline)) {
        auto best = L::load(first + c);
        typename L::Mask which = {};
        which += static_cast<int32_t>(k.r_begin * d.window.S + k.s_begin);
        const float* row = first + c;
        for (int64_t r = k.r_begin; r < k.r_end; ++r, row += down) {
          const float* cell = row;
          for (int64_t s = k.s_begin; s < k.s_end; ++s, cell += across) {
            const auto v = L::load(cell);
            const typename L::Mask wins = (v > best) | (v != v);
            best = wins ? v : best;
            which = (wins & static_cast<int32_t>(r * d.window.S + s)) | (~wins & which);
          }
        }
        if (d.relu) L::apply_relu(best, which);
        L::store(out + c, best);
        L::store_cells(winner + c, which);
      });
}

void max_forward(const PoolDims& d, const float* x, float* y, uint8_t* winner, int64_t begin,
                 int64_t end) {
  const Sizes z = sizes_of(d);
  for (int64_t n = begin; n < end; ++n) {
    const float* image = x + n * z.x_image;
    float* out = y + n * z.y_image;
    uint8_t* cells = winner == nullptr ? nullptr : winner + n * z.y_image;
    if (is_2x2_tiling(d.window)) {
      max_2x2(d, z, image, out, cells);
      continue;
    }
    for (int64_t p = 0; p < z.P; ++p) {
      for (int64_t q = 0; q < z.Q; ++q) {
        const Cells k = cells_of(d, p, q);
        const int64_t at = (p * z.Q + q) * d.x.C;
        if (cells == nullptr) {
          max_window(d, k, image, out + at);
        } else {
          max_window_and_winner(d, k, image, out + at, cells + at);
        }
      }
    }
  }
}

void max_backward_2x2(const PoolDims& d, const Sizes& z, const uint8_t* winner, const float* dy,
                      float* dx) {
  const int64_t C = d.x.C, row = d.x.W * C;
  for (int64_t p = 0; p < z.P; ++p) {
    for (int64_t q = 0; q < z.Q; ++q) {
      float* a = dx + 2 * p * row + 2 * q * C;
      float* b = a + row;
      const int64_t at = (p * z.Q + q) * C;
      for_channels(
          C, [&]<typename L>(int64_t c, L) __attribute__((always_inline)) {
            const typename L::Mask which = L::load_cells(winner + at + c);
            const auto dy_c = L::load(dy + at + c);
            const typename L::Vec zero = {};
            const auto give = [&](float* cell, int32_t number) __attribute__((always_inline)) {
              L::store(cell, which == number ? dy_c : zero);
            };
            give(a + c, 0);
            give(a + C + c, 1);
            give(b + c, 2);
            give(b + C + c, 3);
          });
    }
  }
}

// Adds g to the winning cell `which` of one window, for `count` channels from c0 on.
void add_to_winners(const PoolDims& d, const Cells& k, int64_t c0, int64_t count,
                    const int32_t* which, const float* g, float* dimage) {
  for (int64_t r = k.r_begin; r < k.r_end; ++r) {
    for (int64_t s = k.s_begin; s < k.s_end; ++s) {
      float* cell = dimage + cell_at(d, k, r, s) + c0;
      const auto index = static_cast<int32_t>(r * d.window.S + s);
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) cell[c] += which[c] == index ? g[c] : 0.0f;
    }
  }
}

// Exactly one of x and winner is given.
void max_backward(const PoolDims& d, const float* x, const uint8_t* winner, const float* dy,
                  float* dx, int64_t begin, int64_t end) {
  const Sizes z = sizes_of(d);
  const int64_t C = d.x.C;
  const bool tiling = winner != nullptr && is_2x2_tiling(d.window);
  const bool covers = tiling && z.P * 2 == d.x.H && z.Q * 2 == d.x.W;
  for (int64_t n = begin; n < end; ++n) {
    const float* image = x == nullptr ? nullptr : x + n * z.x_image;
    const uint8_t* cells = winner == nullptr ? nullptr : winner + n * z.y_image;
    const float* g = dy + n * z.y_image;
    float* dimage = dx + n * z.x_image;
    if (!covers) std::memset(dimage, 0, static_cast<size_t>(z.x_image) * sizeof(float));
    if (tiling) {
      max_backward_2x2(d, z, cells, g, dimage);
      continue;
    }
    for (int64_t p = 0; p < z.P; ++p) {
      for (int64_t q = 0; q < z.Q; ++q) {
        const Cells k = cells_of(d, p, q);
        const int64_t at = (p * z.Q + q) * C;
        for_chunks(C, [&](int64_t c0, int64_t count) {
          float best[kChunk];
          int32_t which[kChunk];
          if (cells == nullptr) {
            find_winners(d, k, c0, count, image, best, which);
          } else {
            for (int64_t c = 0; c < count; ++c) which[c] = cells[at + c0 + c];
          }
          add_to_winners(d, k, c0, count, which, g + at + c0, dimage);
        });
      }
    }
  }
}

inline __attribute__((always_inline)) float divisor_of(const PoolDims& d, const Cells& k) {
  const int64_t inside = (k.r_end - k.r_begin) * (k.s_end - k.s_begin);
  return static_cast<float>(d.count_include_pad ? d.window.R * d.window.S : inside);
}

void average_forward(const PoolDims& d, const float* x, float* y, int64_t begin, int64_t end) {
  const Sizes z = sizes_of(d);
  const int64_t C = d.x.C;
  for (int64_t n = begin; n < end; ++n) {
    const float* image = x + n * z.x_image;
    float* out = y + n * z.y_image;
    for (int64_t p = 0; p < z.P; ++p) {
      for (int64_t q = 0; q < z.Q; ++q, out += C) {
        const Cells k = cells_of(d, p, q);
        std::memset(out, 0, static_cast<size_t>(C) * sizeof(float));
        for (int64_t r = k.r_begin; r < k.r_end; ++r) {
          for (int64_t s = k.s_begin; s < k.s_end; ++s) {
            const float* cell = image + cell_at(d, k, r, s);
#pragma omp simd
            for (int64_t c = 0; c < C; ++c) out[c] += cell[c];
          }
        }
        const float divisor = divisor_of(d, k);
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) out[c] /= divisor;
      }
    }
  }
}

void average_backward(const PoolDims& d, const float* dy, float* dx, int64_t begin, int64_t end) {
  const Sizes z = sizes_of(d);
  const int64_t C = d.x.C;
  for (int64_t n = begin; n < end; ++n) {
    float* dimage = dx + n * z.x_image;
    const float* g = dy + n * z.y_image;
    std::memset(dimage, 0, static_cast<size_t>(z.x_image) * sizeof(float));
    for (int64_t p = 0; p < z.P; ++p) {
      for (int64_t q = 0; q < z.Q; ++q, g += C) {
        const Cells k = cells_of(d, p, q);
        const float divisor = divisor_of(d, k);
        for (int64_t r = k.r_begin; r < k.r_end; ++r) {
          for (int64_t s = k.s_begin; s < k.s_end; ++s) {
            float* cell = dimage + cell_at(d, k, r, s);
#pragma omp simd
            for (int64_t c = 0; c < C; ++c) cell[c] += g[c] / divisor;
          }
        }
      }
    }
  }
}

void global_forward(const ImageDims& d, const float* x, float* y, int64_t begin, int64_t end) {
  const int64_t pixels = d.H * d.W;
  for (int64_t n = begin; n < end; ++n) {
    float* out = y + n * d.C;
    std::memset(out, 0, static_cast<size_t>(d.C) * sizeof(float));
    for (int64_t i = 0; i < pixels; ++i) {
      const float* cell = x + (n * pixels + i) * d.C;
#pragma omp simd
      for (int64_t c = 0; c < d.C; ++c) out[c] += cell[c];
    }
    const float divisor = static_cast<float>(pixels);
#pragma omp simd
    for (int64_t c = 0; c < d.C; ++c) out[c] /= divisor;
  }
}

void global_backward(const ImageDims& d, const float* dy, float* dx, int64_t begin, int64_t end) {
  const int64_t pixels = d.H * d.W;
  const float divisor = static_cast<float>(pixels);
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t i = 0; i < pixels; ++i) {
      float* cell = dx + (n * pixels + i) * d.C;
#pragma omp simd
      for (int64_t c = 0; c < d.C; ++c) cell[c] = dy[n * d.C + c] / divisor;
    }
  }
}

}  // namespace

const PoolLoops& TRAINYARD_VARIANT(pool_loops)();
const PoolLoops& TRAINYARD_VARIANT(pool_loops)() {
  static constexpr PoolLoops kLoops = {max_forward,      max_backward,   average_forward,
                                       average_backward, global_forward, global_backward};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
