// Access   in channels-last, if the number of channels is a multiple of eight and all operands have
//          one format, a thread processes eight adjacent channels of a pixel (16 bytes of 16-bit
//          elements); else a thread processes one written element, adjacent threads along the
//          innermost axis. A window's cells are read from memory once and then from the caches.
//          Backward gathers too: for each element of dx it reads the windows that cover the
//          element, so that no two threads add to the same element. Forward stores the number of
//          the cell with each window's maximum in one byte. If that was not kept, backward's first
//          launch recomputes it (in four bytes if a window has more than 256 cells). Max forward
//          accesses 4 B an element of x and 5 B of y (2 and 3 in bf16), backward 4 B of x and 5 B
//          of y (2 and 3).
// Time     bytes / 4.8 TB/s on an H200: 3 x 3, stride 2, of [256, 64, 112, 112] in 0.23 ms forward
//          and 0.23 ms backward, in F32.
// Checked  registers, spills and load widths of the kernels for eight channels, by
//          tests/cuda/kernel_budget_test.py.
#include "kernels/pool.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk.h"
#include "kernels/math/activations.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"

namespace trainyard::kernels::cuda {
namespace {

/// Maps the elements of an image, in memory order, to their coordinates.
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
  Divisor stride_h, stride_w, dilation_h, dilation_w;
  Pool(const PoolDims& dims, const ImageStrides& xs, const ImageStrides& ys)
      : d(dims),
        x(dims.x, xs),
        y(dims.y(), ys),
        stride_h(d.window.stride_h),
        stride_w(d.window.stride_w),
        dilation_h(d.window.dilation_h),
        dilation_w(d.window.dilation_w) {}

  TRAINYARD_HD int64_t top(int64_t p) const { return p * d.window.stride_h - d.window.pad_top; }
  TRAINYARD_HD int64_t left(int64_t q) const { return q * d.window.stride_w - d.window.pad_left; }
  /// Calls f(offset in x, number of the cell) for the window's cells inside the image, in order.
  /// Returns the number of these cells.
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
  /// Returns the range of windows that cover position `at`, where window i covers [i * stride, i *
  /// stride + span).
  TRAINYARD_HD static Range covering(int64_t at, int64_t span, const Divisor& stride,
                                     int64_t windows) {
    const int64_t first = at - span + 1;
    const int64_t begin = first <= 0 ? 0 : stride.quotient(first + stride.value - 1);
    const int64_t last = stride.quotient(at) + 1;
    return {begin, last < windows ? last : windows};
  }
  /// Calls f(p, q, number of the cell) for each window that has element e as a cell.
  template <typename F>
  TRAINYARD_HD void for_windows(const Pixels::Place& e, const F& f) const {
    const Window& win = d.window;
    const int64_t h = e.h + win.pad_top, w = e.w + win.pad_left;
    const Range ps = covering(h, win.height(), stride_h, y.H.value);
    const Range qs = covering(w, win.width(), stride_w, y.W.value);
    for (int64_t p = ps.begin; p < ps.end; ++p) {
      const int64_t down = h - p * win.stride_h, r = dilation_h.quotient(down);
      if (r * win.dilation_h != down) continue;
      for (int64_t q = qs.begin; q < qs.end; ++q) {
        const int64_t across = w - q * win.stride_w, s = dilation_w.quotient(across);
        if (s * win.dilation_w != across) continue;
        f(p, q, static_cast<int32_t>(r * win.S + s));
      }
    }
  }
  /// Returns the cell of the first maximum, where a NaN replaces all candidates before it; -1 if
  /// the window has no cell inside the image.
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

/// y and winner are optional.
template <typename Cell>
TRAINYARD_KERNEL void max_forward(Pool pool, In x, Out y, Cell* winner) {
  for (int64_t i = thread_index(); i < pool.y.count; i += thread_count()) {
    float most;
    int32_t cell = pool.winner(pool.y.place(i), x, &most);
    if (pool.d.relu) {
      most = math::Relu::f(most);
      if (most <= 0) cell = kNoCell;
    }
    if (y) y.set(i, most);
    if (winner != nullptr) winner[i] = static_cast<Cell>(cell);
  }
}

template <typename Cell>
TRAINYARD_KERNEL void max_backward(Pool pool, const Cell* winner, In dy, Out dx) {
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

/// Pooling of channels-last images in packs of eight channels, with all indices in 32 bits.
struct EightsPool {
  int32_t x_count, y_count, groups, R, S;  // x_count, y_count: in packs; groups = C / 8
  int32_t stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, height, width;
  Divisor of_groups, W, H, Q, P, by_stride_h, by_stride_w, by_dilation_h, by_dilation_w;
  bool relu;

  explicit EightsPool(const Pool& pool)
      : x_count(static_cast<int32_t>(pool.x.count / 8)),
        y_count(static_cast<int32_t>(pool.y.count / 8)),
        groups(static_cast<int32_t>(pool.d.x.C / 8)),
        R(static_cast<int32_t>(pool.d.window.R)),
        S(static_cast<int32_t>(pool.d.window.S)),
        stride_h(static_cast<int32_t>(pool.d.window.stride_h)),
        stride_w(static_cast<int32_t>(pool.d.window.stride_w)),
        dilation_h(static_cast<int32_t>(pool.d.window.dilation_h)),
        dilation_w(static_cast<int32_t>(pool.d.window.dilation_w)),
        pad_top(static_cast<int32_t>(pool.d.window.pad_top)),
        pad_left(static_cast<int32_t>(pool.d.window.pad_left)),
        height(static_cast<int32_t>(pool.d.window.height())),
        width(static_cast<int32_t>(pool.d.window.width())),
        of_groups(groups),
        W(pool.x.W),
        H(pool.x.H),
        Q(pool.y.W),
        P(pool.y.H),
        by_stride_h(pool.stride_h),
        by_stride_w(pool.stride_w),
        by_dilation_h(pool.dilation_h),
        by_dilation_w(pool.dilation_w),
        relu(pool.d.relu) {}

  struct Place {
    int32_t n, h, w, group;
  };
  TRAINYARD_DEVICE static int32_t take(int32_t& index, const Divisor& size) {
    const int32_t rest = size.quotient32(index);
    const int32_t last = index - rest * static_cast<int32_t>(size.value);
    index = rest;
    return last;
  }
  TRAINYARD_DEVICE Place place(int32_t pack, const Divisor& rows, const Divisor& columns) const {
    Place p{};
    p.group = take(pack, of_groups);
    p.w = take(pack, columns);
    p.h = take(pack, rows);
    p.n = pack;
    return p;
  }
  TRAINYARD_DEVICE int32_t x_at(const Place& p, int32_t h, int32_t w) const {
    return ((p.n * rows_of(H) + h) * rows_of(W) + w) * groups + p.group;
  }
  TRAINYARD_DEVICE int32_t y_at(const Place& e, int32_t p, int32_t q) const {
    return ((e.n * rows_of(P) + p) * rows_of(Q) + q) * groups + e.group;
  }
  TRAINYARD_DEVICE static int32_t rows_of(const Divisor& d) {
    return static_cast<int32_t>(d.value);
  }
};

/// The numbers of the winning cells of eight channels.
struct alignas(8) EightCells {
  uint32_t word[2];
  TRAINYARD_DEVICE int32_t operator[](int k) const {
    return static_cast<int32_t>(word[k / 4] >> (8 * (k % 4)) & 0xFFu);
  }
};

/// y and winner are optional. kSide: rows and columns of the window if known at compile time, so
/// that the loads of a row of cells are issued together; else 0.
template <Stored kStored, int kSide>
TRAINYARD_KERNEL_OF(kBlockThreads, 4)
void max_eights(EightsPool pool, In x, Out y, EightCells* winner) {
  constexpr int kCells = kSide == 0 ? 1 : kSide;
  const int32_t rows = kSide == 0 ? pool.R : kSide, columns = kSide == 0 ? pool.S : kSide;
  const auto step = static_cast<int32_t>(thread_count());
  for (auto i = static_cast<int32_t>(thread_index()); i < pool.y_count; i += step) {
    const EightsPool::Place o = pool.place(i, pool.P, pool.Q);
    const int32_t h0 = o.h * pool.stride_h - pool.pad_top, w0 = o.w * pool.stride_w - pool.pad_left;
    const auto inside = [](int32_t at, const Divisor& size) {
      return at >= 0 && at < EightsPool::rows_of(size);
    };
    float most[8] = {};
    EightCells best = {};
    bool found = false;
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t h = h0 + r * pool.dilation_h;
      if (!inside(h, pool.H)) continue;
      for (int32_t s0 = 0; s0 < columns; s0 += kCells) {
        Eight<kStored> v[kCells];
        TRAINYARD_UNROLL
        for (int u = 0; u < kCells; ++u) {
          const int32_t w = w0 + (s0 + u) * pool.dilation_w;
          v[u] = load8<kStored>(x, pool.x_at(o, h, inside(w, pool.W) ? w : 0));
        }
        TRAINYARD_UNROLL
        for (int u = 0; u < kCells; ++u) {
          if (!inside(w0 + (s0 + u) * pool.dilation_w, pool.W)) continue;
          const auto cell = static_cast<uint32_t>(r * columns + s0 + u);
          TRAINYARD_UNROLL
          for (int k = 0; k < 8; ++k) {
            const float e = v[u][k];
            if (found && !(e > most[k]) && e == e) continue;
            most[k] = e;
            const int shift = 8 * (k % 4);
            best.word[k / 4] = (best.word[k / 4] & ~(0xFFu << shift)) | cell << shift;
          }
          found = true;
        }
      }
    }
    if (pool.relu) {
      TRAINYARD_UNROLL
      for (int k = 0; k < 8; ++k) {
        most[k] = math::Relu::f(most[k]);
        if (most[k] <= 0) best.word[k / 4] |= uint32_t{kNoCell} << (8 * (k % 4));
      }
    }
    if (y) store8<kStored>(y, i, most);
    if (winner != nullptr) winner[i] = best;
  }
}

template <Stored kStored>
TRAINYARD_KERNEL_OF(kBlockThreads, 4)
void max_backward_eights(EightsPool pool, const EightCells* winner, In dy, Out dx) {
  const auto step = static_cast<int32_t>(thread_count());
  for (auto i = static_cast<int32_t>(thread_index()); i < pool.x_count; i += step) {
    const EightsPool::Place e = pool.place(i, pool.H, pool.W);
    const int32_t h = e.h + pool.pad_top, w = e.w + pool.pad_left;
    // The first and the last window that may cover the pixel.
    const int32_t up = h - pool.height + 1, left = w - pool.width + 1;
    const int32_t p0 = up <= 0 ? 0 : pool.by_stride_h.quotient32(up + pool.stride_h - 1);
    const int32_t q0 = left <= 0 ? 0 : pool.by_stride_w.quotient32(left + pool.stride_w - 1);
    const int32_t p1 = std::min(pool.by_stride_h.quotient32(h), EightsPool::rows_of(pool.P) - 1);
    const int32_t q1 = std::min(pool.by_stride_w.quotient32(w), EightsPool::rows_of(pool.Q) - 1);
    float sum[8] = {};
    for (int32_t p = p0; p <= p1; ++p) {
      const int32_t down = h - p * pool.stride_h, r = pool.by_dilation_h.quotient32(down);
      if (r * pool.dilation_h != down) continue;
      for (int32_t q = q0; q <= q1; ++q) {
        const int32_t across = w - q * pool.stride_w, s = pool.by_dilation_w.quotient32(across);
        if (s * pool.dilation_w != across) continue;
        const int32_t at = pool.y_at(e, p, q), cell = r * pool.S + s;
        const EightCells best = winner[at];
        const Eight<kStored> slope = load8<kStored>(dy, at);
        TRAINYARD_UNROLL
        for (int k = 0; k < 8; ++k) {
          if (best[k] == cell) sum[k] += slope[k];
        }
      }
    }
    store8<kStored>(dx, i, sum);
  }
}

bool takes_eights(const Pool& pool, std::initializer_list<In> operands) {
  return pool.x.channels_last && pool.y.channels_last && pool.d.x.C % 8 == 0 &&
         pool.d.has_byte_cells() && takes_eight(pool.x.count, operands) &&
         takes_eight(pool.y.count, operands);
}

void find_eights(const Pool& pool, In x, Out y, uint8_t* winner, CUstream_st* stream) {
  const Window& w = pool.d.window;
  with_one_format({x}, [&](auto stored) {
    const auto kernel = w.R == 2 && w.S == 2   ? max_eights<stored.value, 2>
                        : w.R == 3 && w.S == 3 ? max_eights<stored.value, 3>
                                               : max_eights<stored.value, 0>;
    launch(grid_for(pool.y.count / 8), stream, kernel, EightsPool(pool), x, y,
           reinterpret_cast<EightCells*>(winner));
  });
}
void find_each(const Pool& pool, In x, Out y, uint8_t* winner, CUstream_st* stream) {
  launch(grid_for(pool.y.count), stream, max_forward<uint8_t>, pool, x, y, winner);
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

/// Sums over the pixels: operand 0 of `kept` is the image, operand 1 is [N, C].
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

void max_pool_forward(const PoolDims& d, const PoolStrides& s, const MaxPoolOperands<Views>& o,
                      Run run) {
  check(d, o);
  const Pool pool(d, s.x, s.y);
  (takes_eights(pool, {o.x, o.y}) ? find_eights : find_each)(pool, o.x, o.y, o.winner, run.stream);
}

int64_t max_pool_backward_workspace_bytes(const PoolDims& d) {
  return d.y().elements() * static_cast<int64_t>(d.has_byte_cells() ? 1 : sizeof(int32_t));
}

void max_pool_backward(const PoolDims& d, const PoolStrides& s, const MaxPoolGradOperands<Views>& o,
                       Run run) {
  check(d, o);
  const Pool pool(d, s.x, s.y);
  if (!d.has_byte_cells()) {
    auto* const found = workspace_of<int32_t>("max_pool_backward", run);
    launch(grid_for(pool.y.count), run.stream, max_forward<int32_t>, pool, o.x, Out(), found);
    launch(grid_for(pool.x.count), run.stream, max_backward<int32_t>, pool, found, o.dy, o.dx);
    return;
  }
  const uint8_t* winner = o.winner;
  if (winner == nullptr) {
    auto* const found = workspace_of<uint8_t>("max_pool_backward", run);
    (takes_eights(pool, {o.x}) ? find_eights : find_each)(pool, o.x, {}, found, run.stream);
    winner = found;
  }
  if (!takes_eights(pool, {o.dy, o.dx})) {
    launch(grid_for(pool.x.count), run.stream, max_backward<uint8_t>, pool, winner, o.dy, o.dx);
    return;
  }
  with_one_format({o.dx}, [&](auto stored) {
    launch(grid_for(pool.x.count / 8), run.stream, max_backward_eights<stored.value>,
           EightsPool(pool), reinterpret_cast<const EightCells*>(winner), o.dy, o.dx);
  });
}

void average_pool_forward(const PoolDims& d, const PoolStrides& s, In x, Out y, Run run) {
  check_average(d.x, x, y);
  const Pool pool(d, s.x, s.y);
  launch(grid_for(pool.y.count), run.stream, average_forward, pool, x, y);
}

void average_pool_backward(const PoolDims& d, const PoolStrides& s, In dy, Out dx, Run run) {
  check_average(d.x, dy, dx);
  const Pool pool(d, s.x, s.y);
  launch(grid_for(pool.x.count), run.stream, average_backward, pool, dy, dx);
}

int64_t global_average_pool_workspace_bytes(const ImageDims& d, const ImageStrides& xs) {
  return reduce_workspace_bytes(pixel_means(d, xs));
}

void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, In x, Out y, Run run) {
  check_average(d, x, y);
  reduce(pixel_means(d, xs), x, y, run);
}

void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, In dy, Out dx,
                                  Run run) {
  check_average(d, dy, dx);
  Box<2> box;
  box.append(d.N, {d.C, xs.n});
  if (xs.is_channels_last(d)) {
    box.append(d.pixels(), {0, xs.w});
    box.append(d.C, {1, xs.c});
  } else {
    box.append(d.C, {1, xs.c});
    box.append(d.pixels(), {0, xs.w});
  }
  scale(box, 1 / static_cast<double>(d.pixels()), dy, dx, run);
}

}  // namespace trainyard::kernels::cuda
