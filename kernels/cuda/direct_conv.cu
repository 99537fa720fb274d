// Both kernels are matrix products whose operands are gathered from a patch of the image in shared
// memory, so that no im2col matrix is stored. Each warp multiplies tiles of 16 x 8, with tensor
// cores if operands have 16 bits, else with ordinary arithmetic.
//
//   correlate        y and dx: pixels by channels of the result, summed over channels and pixels of
//                    the filters; for dx these are rotated by 180 degrees. A warp has 16 pixels.
//   filter_gradient  dw: filters by their elements, summed over the pixels of all images. A warp
//                    computes 8 elements; a block sums the pieces of a slice, and then the slices
//                    are added. db is treated as one more element, whose image is all ones.
//
// Access   adjacent threads copy adjacent elements of images and filters to shared memory, with 8
//          loads in flight each. The strides of pixels and filters are 4 words modulo 8, so that
//          the threads of a warp read different banks.
// Time     latency of two rounds of loads and some hundred instructions, 2 to 5 us (estimated).
#include "kernels/cuda/direct_conv.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduction.h"
#include "kernels/cuda/walk.h"
#include "kernels/math/activations.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int32_t kWarps = kBlockThreads / kWarp;
constexpr int32_t kRows = 16, kColumns = 8;   // size of a warp's tile
constexpr int32_t kTileMax = kRows * kWarps;  // pixels per block
constexpr int64_t kSharedMax = 48 << 10;
constexpr int64_t kBlocksWanted = 128;  // about one per multiprocessor of an H100
constexpr int64_t kSideMax = 32, kFilterSideMax = 11, kDepthMax = 512;
constexpr int64_t kFlopsMax = int64_t{1} << 30;
constexpr int kStaged = 8;  // loads in flight per thread

template <Stored kStored>
struct Element {
  using T = float;
};
template <>
struct Element<Stored::kBf16> {
  using T = math::Bf16;
};
template <>
struct Element<Stored::kF16> {
  using T = math::F16;
};
template <Stored kStored>
using ElementOf = typename Element<kStored>::T;

/// Two adjacent elements, which a tensor core or a thread reads together.
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
  T v[2];
};
template <typename T>
TRAINYARD_DEVICE const Pair<T>& pair_at(const T* p) {
  return *reinterpret_cast<const Pair<T>*>(p);
}
template <typename T>
TRAINYARD_DEVICE uint32_t word_of(const Pair<T>& p) {
  return p.v[0].bits | static_cast<uint32_t>(p.v[1].bits) << 16;
}

template <Stored kFrom, Stored kTo>
TRAINYARD_DEVICE ElementOf<kTo> load_as(const void* data, int64_t i) {
  const ElementOf<kFrom> v = static_cast<const ElementOf<kFrom>*>(data)[i];
  if constexpr (kFrom == kTo) {
    return v;
  } else {
    return math::narrow<ElementOf<kTo>>(v);
  }
}

/// Copies `count` elements to shared memory: load(i, to) sets the index `to`, returns element i.
template <typename T, typename Load>
TRAINYARD_DEVICE void stage(int32_t count, T* shared, const Load& load) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kStaged * kBlockThreads) {
    T v[kStaged] = {};
    int32_t to[kStaged] = {};
    TRAINYARD_UNROLL
    for (int u = 0; u < kStaged; ++u) {
      if (i + u * kBlockThreads < count) v[u] = load(i + u * kBlockThreads, to[u]);
    }
    TRAINYARD_UNROLL
    for (int u = 0; u < kStaged; ++u) {
      if (i + u * kBlockThreads < count) shared[to[u]] = v[u];
    }
  }
}

struct Strides {
  int32_t n, c, h, w;
};
Strides strides_of(const ImageDims& d, bool channels_last) {
  const ImageStrides s =
      channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
  return {static_cast<int32_t>(s.n), static_cast<int32_t>(s.c), static_cast<int32_t>(s.h),
          static_cast<int32_t>(s.w)};
}

/// An image under a window with stride 1. A block computes `tile` of the window's places (output
/// pixels), from a patch of the image that covers them; the padding is zeros in the patch.
struct Slide {
  int32_t C = 0, H = 0, W = 0, S = 0, taps = 0;
  int32_t places = 0, Q = 0;
  int32_t pad_top = 0, pad_left = 0;  // negative: that many rows or columns are skipped
  Strides at{};
  bool channels_last = false;
  int32_t tile = 0, tiles = 0;      // tile: places per block; tiles: blocks per image
  int32_t rows = 0, width = 0;      // of a patch, in pixels
  int32_t channels = 0, pitch = 0;  // of a patch; pitch: elements between adjacent pixels
  Divisor of_Q, of_S, of_taps, of_rows, of_width, of_channels;

  Slide(const ImageDims& x, bool last, const Window& w, int64_t top, int64_t left, int64_t P,
        int64_t q)
      : C(static_cast<int32_t>(x.C)),
        H(static_cast<int32_t>(x.H)),
        W(static_cast<int32_t>(x.W)),
        S(static_cast<int32_t>(w.S)),
        taps(static_cast<int32_t>(w.R * w.S)),
        places(static_cast<int32_t>(P * q)),
        Q(static_cast<int32_t>(q)),
        pad_top(static_cast<int32_t>(top)),
        pad_left(static_cast<int32_t>(left)),
        at(strides_of(x, last)),
        channels_last(last),
        width(static_cast<int32_t>(q + w.S - 1)),
        of_Q(q),
        of_S(w.S),
        of_taps(taps),
        of_width(width) {}
  void set_tile(int32_t most) {
    tiles = (places + most - 1) / most;
    tile = ((places + tiles - 1) / tiles + kRows - 1) / kRows * kRows;
    rows = std::min((tile - 2) / Q + 2, places / Q) + taps / S - 1;
    of_rows = Divisor(rows);
  }
  void set_channels(int32_t count, int32_t elements) {
    channels = count;
    pitch = elements;
    of_channels = Divisor(count);
  }
  int64_t patch_elements() const { return int64_t{rows} * width * pitch; }
  TRAINYARD_HD int32_t row_of(int32_t place) const { return of_Q.quotient32(place); }
  /// Offset of tap `tap` of the window at the first place of a patch.
  TRAINYARD_HD int32_t offset(int32_t tap) const {
    const int32_t r = of_S.quotient32(tap);
    return (r * width + tap - r * S) * pitch;
  }
  /// Offset of the window at `place` in the patch that begins with the row of place `first`.
  TRAINYARD_HD int32_t base(int32_t place, int32_t first) const {
    const int32_t p = row_of(place);
    return ((p - row_of(first)) * width + place - p * Q) * pitch;
  }
};

/// Copies the patch for the places from `first` on, and the channels from `channel` on, to shared
/// memory. Channels beyond the image's last are zeros.
template <Stored kImage, Stored kOperands>
TRAINYARD_DEVICE void stage_patch(const Slide& s, const void* image, int32_t n, int32_t first,
                                  int32_t channel, ElementOf<kOperands>* patch) {
  const int32_t top = s.row_of(first) - s.pad_top;
  const int64_t begin = int64_t{n} * s.at.n;
  stage(s.rows * s.width * s.channels, patch, [&](int32_t i, int32_t& to) {
    int32_t row, column, c;
    if (s.channels_last) {
      const int32_t pixel = s.of_channels.quotient32(i);
      c = i - pixel * s.channels;
      row = s.of_width.quotient32(pixel);
      column = pixel - row * s.width;
    } else {
      const int32_t line = s.of_width.quotient32(i);
      column = i - line * s.width;
      c = s.of_rows.quotient32(line);
      row = line - c * s.rows;
    }
    to = (row * s.width + column) * s.pitch + c;
    const int32_t h = top + row, w = column - s.pad_left;
    const bool is_there = h >= 0 && h < s.H && w >= 0 && w < s.W && channel + c < s.C;
    if (!is_there) return ElementOf<kOperands>{};
    return load_as<kImage, kOperands>(image,
                                      begin + (channel + c) * s.at.c + h * s.at.h + w * s.at.w);
  });
}

// The kernel for y and dx: correlate.

struct Correlation {
  Slide slide;
  int32_t images = 0, K = 0;            // K: channels of the result
  int32_t filter_k = 0, filter_c = 0;   // strides between filters and between channels
  bool turned = false;                  // whether filters are rotated by 180 degrees
  int32_t eights = 0, groups = 0;       // 8-channel groups per block; blocks for all channels
  int32_t pairs = 0, filter_pitch = 0;  // channel pairs times taps; elements of a staged filter
  Divisor of_pairs{};                   // divides by the number of channel pairs
  Strides result{};

  int64_t blocks() const { return int64_t{images} * slide.tiles * groups; }
};

/// Returns the smallest number that is at least `words` and 4 modulo 8.
int32_t spread(int32_t words) { return (words + 3) / 8 * 8 + 4; }
int32_t words_of(int32_t elements, int64_t bytes) {
  return static_cast<int32_t>((elements * bytes + 3) / 4);
}
int32_t spread_elements(int32_t elements, int64_t bytes) {
  return static_cast<int32_t>(spread(words_of(elements, bytes)) * 4 / bytes);
}

template <Stored kImage, Stored kOperands, int kEights>
TRAINYARD_KERNEL_OF(kBlockThreads, 2)
void correlate(Correlation d, const void* image, const void* filters, const float* bias, bool relu,
               Out y) {
  using T = ElementOf<kOperands>;
  TRAINYARD_DYNAMIC_SHARED(T, patch);
  const Slide& s = d.slide;
  T* const staged = patch + s.rows * s.width * s.pitch;
  auto* const offsets = reinterpret_cast<uint16_t*>(staged + kEights * kColumns * d.filter_pitch);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t g = thread % kWarp / 4, t = thread % 4, warp = thread / kWarp;

  const int32_t block = static_cast<int32_t>(blockIdx.x);
  const int32_t group = block % d.groups, piece = block / d.groups;
  const int32_t n = piece / s.tiles, first = (piece - n * s.tiles) * s.tile;
  const int32_t last = first + s.tile < s.places ? first + s.tile : s.places;
  const int32_t k0 = group * kEights * kColumns;
  const int32_t place[2] = {first + warp * kRows + g, first + warp * kRows + g + 8};
  const bool is_idle = first + warp * kRows >= last;  // the same for a whole warp
  int32_t base[2];
  for (int i = 0; i < 2; ++i) base[i] = place[i] < last ? s.base(place[i], first) : 0;

  for (int32_t p = thread; p < d.pairs; p += kBlockThreads) {
    const int32_t tap = d.of_pairs.quotient32(p);
    offsets[p] = static_cast<uint16_t>(s.offset(tap) + 2 * (p - tap * (s.channels / 2)));
  }
  float c[kEights][4] = {};
  for (int32_t channel = 0; channel < s.C; channel += s.channels) {
    if (channel > 0) __syncthreads();  // the previous channels have been read
    stage_patch<kImage, kOperands>(s, image, n, first, channel, patch);
    stage(kEights * kColumns * s.channels * s.taps, staged, [&](int32_t i, int32_t& to) {
      const int32_t line = s.of_taps.quotient32(i), tap = i - line * s.taps;
      // In memory order: filter by filter, or channel by channel if the filters are rotated.
      int32_t k, ch;
      if (d.turned) {
        ch = line / (kEights * kColumns);
        k = line - ch * (kEights * kColumns);
      } else {
        k = s.of_channels.quotient32(line);
        ch = line - k * s.channels;
      }
      to = k * d.filter_pitch + (d.turned ? s.taps - 1 - tap : tap) * s.channels + ch;
      if (k0 + k >= d.K || channel + ch >= s.C) return T{};
      return static_cast<const T*>(
          filters)[int64_t{k0 + k} * d.filter_k + (channel + ch) * d.filter_c + tap];
    });
    __syncthreads();
    if (is_idle) continue;
    if constexpr (kOperands == Stored::kF32) {
      for (int32_t p = 0; p < d.pairs; ++p) {
        const int32_t at = offsets[p];
        const Pair<float> x0 = pair_at(patch + base[0] + at), x1 = pair_at(patch + base[1] + at);
        TRAINYARD_UNROLL
        for (int j = 0; j < kEights; ++j) {
          TRAINYARD_UNROLL
          for (int e = 0; e < 2; ++e) {
            const Pair<float> f =
                pair_at(staged + (j * kColumns + 2 * t + e) * d.filter_pitch + 2 * p);
            c[j][e] += x0.v[0] * f.v[0] + x0.v[1] * f.v[1];
            c[j][2 + e] += x1.v[0] * f.v[0] + x1.v[1] * f.v[1];
          }
        }
      }
    } else {
      for (int32_t step = 0; step < d.pairs; step += 8) {
        uint32_t a[4], b[kEights][2];
        TRAINYARD_UNROLL
        for (int h = 0; h < 2; ++h) {
          // Zeros beyond the last pair, without a branch: the warp multiplies together.
          const bool is_there = step + t + 4 * h < d.pairs;
          const int32_t p = is_there ? step + t + 4 * h : 0, at = offsets[p];
          const auto word_at = [&](const T* from) {
            const uint32_t word = word_of(pair_at(from));
            return is_there ? word : 0;
          };
          a[2 * h] = word_at(patch + base[0] + at);
          a[2 * h + 1] = word_at(patch + base[1] + at);
          TRAINYARD_UNROLL
          for (int j = 0; j < kEights; ++j) {
            b[j][h] = word_at(staged + (j * kColumns + g) * d.filter_pitch + 2 * p);
          }
        }
        TRAINYARD_UNROLL
        for (int j = 0; j < kEights; ++j) multiply_accumulate<kOperands>(c[j], a, b[j]);
      }
    }
  }
  TRAINYARD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int32_t at = place[i / 2];
    if (at >= last) continue;
    const int32_t p = s.row_of(at);
    const int64_t pixel = int64_t{n} * d.result.n + p * d.result.h + (at - p * s.Q) * d.result.w;
    TRAINYARD_UNROLL
    for (int j = 0; j < kEights; ++j) {
      const int32_t k = k0 + j * kColumns + 2 * t + i % 2;
      if (k >= d.K) continue;
      float v = c[j][i];
      if (bias != nullptr) v += bias[k];
      y.set(pixel + k * d.result.c, relu ? math::Relu::f(v) : v);
    }
  }
}

/// Sets the number of channels to stage at once; returns the bytes of shared memory needed.
int64_t stage_channels(Correlation& d, int32_t channels, int64_t bytes) {
  d.slide.set_channels(channels, spread_elements(channels, bytes));
  d.pairs = channels / 2 * d.slide.taps;
  d.filter_pitch = spread_elements(2 * d.pairs, bytes);
  d.of_pairs = Divisor(channels / 2);
  const int64_t filters = int64_t{d.eights} * kColumns * d.filter_pitch;
  return (d.slide.patch_elements() + filters) * bytes +
         d.pairs * static_cast<int64_t>(sizeof(uint16_t));
}

/// Chooses as many result channels per block as still leave enough blocks, or fewer if all channels
/// of the image can then be staged at once. Returns the bytes of shared memory.
int64_t plan(Correlation& d, int64_t bytes) {
  d.slide.set_tile(kTileMax);
  const int32_t all = (d.slide.C + 1) / 2 * 2;
  const auto set_eights = [&](int32_t eights) {
    d.eights = eights;
    d.groups = (d.K + eights * kColumns - 1) / (eights * kColumns);
  };
  int32_t most = 0;  // the largest number of eights that leaves enough blocks
  for (const int32_t eights : {4, 2, 1}) {
    set_eights(eights);
    const bool is_too_wide = eights > 1 && eights / 2 * kColumns >= d.K;
    if (is_too_wide || (d.blocks() < kBlocksWanted && eights > 1)) continue;
    if (most == 0) most = eights;
    if (const int64_t shared = stage_channels(d, all, bytes); shared <= kSharedMax) return shared;
  }
  set_eights(most);
  int32_t channels = all;
  int64_t shared = 0;
  do {
    channels -= 2;
    shared = stage_channels(d, channels, bytes);
  } while (shared > kSharedMax);
  return shared;
}

/// Calls f(image, operands) with the storage formats as compile-time constants.
template <typename F>
void with_operands(Format image, Format operands, const F& f) {
  using enum Stored;
  const auto with_image = [&]<Stored kOperands>(std::integral_constant<Stored, kOperands> o) {
    if (image == Format::kF32) {
      f(std::integral_constant<Stored, kF32>(), o);
    } else {
      f(o, o);
    }
  };
  if (operands == Format::kF32) {
    with_image(std::integral_constant<Stored, kF32>());
  } else if (operands == Format::kBf16) {
    with_image(std::integral_constant<Stored, kBf16>());
  } else {
    with_image(std::integral_constant<Stored, kF16>());
  }
}

void correlate(Correlation d, const DirectConvOperands& o, CUstream_st* stream) {
  const int64_t shared = plan(d, element_bytes(o.w.format));
  const Grid grid{d.blocks(), kBlockThreads, static_cast<int>(shared)};
  with_operands(o.x.format, o.w.format, [&](auto from, auto to) {
    const auto kernel = d.eights == 4   ? correlate<from.value, to.value, 4>
                        : d.eights == 2 ? correlate<from.value, to.value, 2>
                                        : correlate<from.value, to.value, 1>;
    launch(grid, stream, kernel, d, o.x.data, o.w.data, o.bias, o.relu, o.y);
  });
}

// The kernel for dw and db: filter_gradient.

struct FilterGradient {
  Slide slide;                       // over x; its patch has only the channels that a block needs
  int32_t K = 0, elements = 0;       // elements per filter; db is one more column after them
  int32_t sixteens = 0, groups = 0;  // groups of 16 filters per block; blocks along the filters
  int32_t element_groups = 0;        // blocks along the elements
  int32_t kept = 0, dy_pitch = 0;    // filters whose dy is staged; elements between them
  int32_t pieces = 0, in_slice = 0, slices = 0;
  Strides dy{};
  Divisor of_kept{}, of_tile{}, of_columns{};

  TRAINYARD_HD int32_t columns() const { return elements + 1; }
  int64_t blocks() const { return int64_t{slices} * groups * element_groups; }
};

/// The destination of sums: `result` is filter * columns + column.
struct FilterSums {
  Out dw;
  float* db;  // or nullptr
  TRAINYARD_DEVICE void put(const FilterGradient& d, int32_t result, float sum) const {
    const int32_t k = d.of_columns.quotient32(result), element = result - k * d.columns();
    if (element < d.elements) {
      dw.set(int64_t{k} * d.elements + element, sum);
    } else if (db != nullptr) {
      db[k] = sum;
    }
  }
};
constexpr int32_t kElements = kColumns * kWarps;  // per block

template <Stored kImage, Stored kOperands, int kSixteens>
TRAINYARD_KERNEL_OF(kBlockThreads, 2)
void filter_gradient(FilterGradient d, const void* x, const void* dy, FilterSums sums,
                     float* partial) {
  using T = ElementOf<kOperands>;
  TRAINYARD_DYNAMIC_SHARED(T, staged);  // dy, with adjacent pixels contiguous
  TRAINYARD_SHARED(Pair<uint16_t>, bases, [kTileMax / 2]);
  const Slide& s = d.slide;
  T* const patch = staged + kSixteens * kRows * d.dy_pitch;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t g = thread % kWarp / 4, t = thread % 4, warp = thread / kWarp;

  const int32_t block = static_cast<int32_t>(blockIdx.x);
  const int32_t rest = block / d.element_groups, e0 = (block - rest * d.element_groups) * kElements;
  const int32_t slice = rest / d.groups, k0 = (rest - slice * d.groups) * kSixteens * kRows;
  const int32_t channel = s.of_taps.quotient32(e0);
  const int32_t own = e0 + warp * kColumns;
  const auto offset_of = [&](int32_t element) {
    if (element >= d.elements) return 0;
    const int32_t c = s.of_taps.quotient32(element);
    return s.offset(element - c * s.taps) + c - channel;
  };
  // This thread's columns: those of the tensor cores' operand b, or for F32 of its results.
  constexpr bool kIsF32 = kOperands == Stored::kF32;
  const int32_t column = own + (kIsF32 ? 2 * t : g);
  const int32_t at0 = offset_of(column), at1 = kIsF32 ? offset_of(column + 1) : 0;
  const bool is_sum0 = column == d.elements, is_sum1 = kIsF32 && column + 1 == d.elements;

  float c[kSixteens][4] = {};
  const int32_t begin = slice * d.in_slice;
  const int32_t end = begin + d.in_slice < d.pieces ? begin + d.in_slice : d.pieces;
  for (int32_t piece = begin; piece < end; ++piece) {
    const int32_t n = piece / s.tiles, first = (piece - n * s.tiles) * s.tile;
    const int32_t count = first + s.tile < s.places ? s.tile : s.places - first;
    if (piece > begin) __syncthreads();  // the previous piece has been read
    for (int32_t i = thread; i < s.tile; i += kBlockThreads) {
      bases[i / 2].v[i % 2] = static_cast<uint16_t>(i < count ? s.base(first + i, first) : 0);
    }
    stage_patch<kImage, kOperands>(s, x, n, first, channel, patch);
    stage(d.kept * s.tile, staged, [&](int32_t i, int32_t& to) {
      int32_t k, pixel;
      if (s.channels_last) {
        pixel = d.of_kept.quotient32(i);
        k = i - pixel * d.kept;
      } else {
        k = d.of_tile.quotient32(i);
        pixel = i - k * s.tile;
      }
      to = k * d.dy_pitch + pixel;
      if (pixel >= count || k0 + k >= d.K) return T{};
      const int32_t p = s.row_of(first + pixel), q = first + pixel - p * s.Q;
      return static_cast<const T*>(
          dy)[int64_t{n} * d.dy.n + (k0 + k) * d.dy.c + p * d.dy.h + q * d.dy.w];
    });
    __syncthreads();
    if (own >= d.columns()) continue;  // the same for a whole warp
    if constexpr (kIsF32) {
      for (int32_t pixel = 0; pixel < count; ++pixel) {
        const int32_t base = bases[pixel / 2].v[pixel % 2];
        const float b0 = is_sum0 ? 1.0f : patch[base + at0];
        const float b1 = is_sum1 ? 1.0f : patch[base + at1];
        TRAINYARD_UNROLL
        for (int i = 0; i < kSixteens; ++i) {
          const float a0 = staged[(i * kRows + g) * d.dy_pitch + pixel];
          const float a1 = staged[(i * kRows + g + 8) * d.dy_pitch + pixel];
          c[i][0] += a0 * b0;
          c[i][1] += a0 * b1;
          c[i][2] += a1 * b0;
          c[i][3] += a1 * b1;
        }
      }
    } else {
      for (int32_t step = 0; step < s.tile; step += 16) {
        uint32_t b[2];
        TRAINYARD_UNROLL
        for (int h = 0; h < 2; ++h) {
          const Pair<uint16_t> base = bases[step / 2 + t + 4 * h];
          const T one = math::narrow<T>(1.0f);
          b[h] = word_of(is_sum0 ? Pair<T>{{one, one}}
                                 : Pair<T>{{patch[base.v[0] + at0], patch[base.v[1] + at0]}});
        }
        TRAINYARD_UNROLL
        for (int i = 0; i < kSixteens; ++i) {
          const T* const row = staged + (i * kRows + g) * d.dy_pitch + step + 2 * t;
          const T* const next = row + 8 * d.dy_pitch;
          const uint32_t a[4] = {word_of(pair_at(row)), word_of(pair_at(next)),
                                 word_of(pair_at(row + 8)), word_of(pair_at(next + 8))};
          multiply_accumulate<kOperands>(c[i], a, b);
        }
      }
    }
  }
  TRAINYARD_UNROLL
  for (int i = 0; i < kSixteens; ++i) {
    TRAINYARD_UNROLL
    for (int h = 0; h < 4; ++h) {
      const int32_t k = k0 + i * kRows + g + h / 2 * 8, element = own + 2 * t + h % 2;
      if (k >= d.K || element >= d.columns()) continue;
      const int32_t result = k * d.columns() + element;
      if (partial != nullptr) {
        partial[int64_t{slice} * d.K * d.columns() + result] = c[i][h];
      } else {
        sums.put(d, result, c[i][h]);
      }
    }
  }
}

/// Adds the sums of the slices; a source for reduction.h.
struct SliceSums {
  using Acc = float;
  FilterGradient d;
  const float* partial;
  FilterSums sums;
  TRAINYARD_DEVICE Acc zero() const { return 0; }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    const int64_t results = int64_t{d.K} * d.columns();
    for (int64_t slice = begin; slice < end; slice += step)
      acc += partial[slice * results + result];
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const { acc += other; }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const {
    sums.put(d, static_cast<int32_t>(result), acc);
  }
};

struct PlannedGradient {
  FilterGradient d;
  int64_t shared = 0;
};
PlannedGradient plan_gradient(const ConvDims& dims, bool channels_last, int64_t bytes) {
  const ImageDims y = dims.y();
  const Window& w = dims.window;
  PlannedGradient planned{{Slide(dims.x, channels_last, w, w.pad_top, w.pad_left, y.H, y.W)}};
  FilterGradient& d = planned.d;
  d.K = static_cast<int32_t>(dims.K);
  d.elements = static_cast<int32_t>(dims.x.C) * d.slide.taps;
  d.dy = strides_of(y, channels_last);
  d.sixteens = d.K > 32 ? 4 : d.K > 16 ? 2 : 1;
  d.groups = (d.K + d.sixteens * kRows - 1) / (d.sixteens * kRows);
  d.of_columns = Divisor(d.columns());
  d.element_groups = (d.columns() + kElements - 1) / kElements;
  d.kept = std::min(d.K, d.sixteens * kRows);
  d.of_kept = Divisor(d.kept);
  const int32_t channels = std::min(d.slide.C, (kElements + d.slide.taps - 2) / d.slide.taps + 1);
  d.slide.set_channels(channels, channels | 1);
  for (int32_t tile = kTileMax;; tile /= 2) {
    d.slide.set_tile(tile);
    d.dy_pitch = spread_elements(d.slide.tile, bytes);
    planned.shared = (int64_t{d.sixteens} * kRows * d.dy_pitch + d.slide.patch_elements()) * bytes;
    if (planned.shared + kTileMax * 2 <= kSharedMax || tile == kRows) break;
  }
  d.of_tile = Divisor(d.slide.tile);
  d.pieces = static_cast<int32_t>(dims.x.N) * d.slide.tiles;
  const int64_t others = int64_t{d.groups} * d.element_groups;
  const auto wanted =
      static_cast<int32_t>(std::clamp<int64_t>((kBlocksWanted + others - 1) / others, 1, d.pieces));
  d.in_slice = (d.pieces + wanted - 1) / wanted;
  d.slices = (d.pieces + d.in_slice - 1) / d.in_slice;
  return planned;
}

}  // namespace

bool supports_direct_conv(const ConvDims& d) {
  const Window& w = d.window;
  const ImageDims y = d.y();
  const int64_t side = std::max({d.x.H, d.x.W, y.H, y.W});
  return d.group == 1 && w.stride_h == 1 && w.stride_w == 1 && w.dilation_h == 1 &&
         w.dilation_w == 1 && side <= kSideMax && y.elements() > 0 && w.R * w.S > 1 &&
         std::max(w.R, w.S) <= kFilterSideMax && d.x.C * w.R * w.S <= kDepthMax &&
         d.flops() <= kFlopsMax;
}

void direct_conv_forward(const ConvDims& d, bool channels_last, const DirectConvOperands& o,
                         Run run) {
  Contract("direct_conv_forward").given("x", o.x).given("w", o.w).given("y", o.y);
  const ImageDims out = d.y();
  Correlation c{
      Slide(d.x, channels_last, d.window, d.window.pad_top, d.window.pad_left, out.H, out.W)};
  c.images = static_cast<int32_t>(d.x.N);
  c.K = static_cast<int32_t>(d.K);
  c.filter_k = static_cast<int32_t>(d.x.C) * c.slide.taps;
  c.filter_c = c.slide.taps;
  c.result = strides_of(out, channels_last);
  correlate(c, o, run.stream);
}

void direct_conv_backward_data(const ConvDims& d, bool channels_last, In dy, In w, Out dx,
                               Run run) {
  Contract("direct_conv_backward_data").given("dy", dy).given("w", w).given("dx", dx);
  const Window& window = d.window;
  Correlation c{Slide(d.y(), channels_last, window, window.R - 1 - window.pad_top,
                      window.S - 1 - window.pad_left, d.x.H, d.x.W)};
  c.images = static_cast<int32_t>(d.x.N);
  c.K = static_cast<int32_t>(d.x.C);
  c.filter_k = c.slide.taps;
  c.filter_c = static_cast<int32_t>(d.x.C) * c.slide.taps;
  c.turned = true;
  c.result = strides_of(d.x, channels_last);
  correlate(c, {.x = dy, .w = w, .y = dx}, run.stream);
}

int64_t direct_conv_backward_weights_workspace_bytes(const ConvDims& d, Format operands) {
  const int32_t slices = plan_gradient(d, true, element_bytes(operands)).d.slices;
  const int64_t results = d.weight_elements() + d.K;
  return slices == 1 ? 0 : slices * results * static_cast<int64_t>(sizeof(float));
}

void direct_conv_backward_weights(const ConvDims& dims, bool channels_last,
                                  const DirectConvGradOperands& o, Run run) {
  constexpr const char* kName = "direct_conv_backward_weights";
  Contract(kName).given("x", o.x).given("dy", o.dy).given("dw", o.dw);
  const auto [d, shared] = plan_gradient(dims, channels_last, element_bytes(o.dy.format));
  const Grid grid{d.blocks(), kBlockThreads, static_cast<int>(shared)};
  const FilterSums sums{o.dw, o.db};
  auto* const partial = d.slices == 1 ? nullptr : workspace_of<float>(kName, run);
  with_operands(o.x.format, o.dy.format, [&, &d = d](auto from, auto to) {
    const auto kernel = d.sixteens == 4   ? filter_gradient<from.value, to.value, 4>
                        : d.sixteens == 2 ? filter_gradient<from.value, to.value, 2>
                                          : filter_gradient<from.value, to.value, 1>;
    launch(grid, run.stream, kernel, d, o.x.data, o.dy.data, sums, partial);
  });
  if (d.slices == 1) return;
  ReductionPlan p = plan_reduction(dims.weight_elements() + d.K, d.slices, Adjacent::kResults);
  p.slices = 1;
  p.slice = d.slices;
  reduce(p, SliceSums{d, partial, sums}, nullptr, run.stream);
}

}  // namespace trainyard::kernels::cuda
