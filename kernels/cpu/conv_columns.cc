#include "kernels/cpu/conv_columns.h"

#include <cstring>

#include "kernels/cpu/simd/columns.h"
#include "kernels/cpu/simd/elementwise.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kColumnElements = int64_t{128} * 1024;  // per chunk: 1/4 of a 2 MiB cache
constexpr int64_t kChunkPixels = 128;  // minimum per chunk, since each reads all weights
constexpr int64_t kSharedColumnElements = int64_t{1024} * 1024;  // per chunk shared by all threads
constexpr int64_t kLanes = 16;

int64_t patch_size(const ConvDims& d) { return d.window.R * d.window.S * d.x.C; }

double lanes_used(int64_t channels) {
  const int64_t filled = (channels + kLanes - 1) / kLanes * kLanes;
  return static_cast<double>(channels) / static_cast<double>(filled);
}

int64_t bytes_of(int64_t elements) { return elements * static_cast<int64_t>(sizeof(float)); }

/// `make_product(rows)` prepares the matrix product for that many output rows. Slices begin at
/// multiples of `step` rows.
template <typename F>
std::vector<ColumnSlice> make_slices(const ConvDims& d, int threads, int64_t step,
                                     WorkspaceLayout& workspace, const F& make_product) {
  const ImageDims y = d.y();
  const int64_t rows_in_all = d.x.N * y.H, parts = std::min<int64_t>(threads, rows_in_all / step);
  std::vector<ColumnSlice> slices(static_cast<size_t>(parts));
  for (int64_t i = 0; i < parts; ++i) {
    ColumnSlice& s = slices[static_cast<size_t>(i)];
    s.rows = part_of(rows_in_all, i, parts, step);
    const int64_t rows = s.rows.size();
    const int64_t rows_min = (kChunkPixels + y.W - 1) / y.W;
    s.chunk_rows =
        std::clamp<int64_t>(std::max(kColumnElements / (y.W * patch_size(d)), rows_min), 1, rows);
    s.tail_rows = rows % s.chunk_rows;
    s.chunk = make_product(s.chunk_rows);
    if (s.tail_rows > 0) s.tail = make_product(s.tail_rows);
    s.product_offset = workspace.add(std::max(s.chunk.workspace_bytes(), s.tail.workspace_bytes()));
    s.columns_offset = workspace.add(bytes_of(s.chunk_rows * y.W * patch_size(d)));
  }
  return slices;
}

/// Calls f(product, first_row, rows) for each chunk of a slice.
template <typename F>
void for_chunks(ColumnSlice& s, const F& f) {
  for (int64_t row = s.rows.begin; row < s.rows.end;) {
    const int64_t rows = std::min(s.chunk_rows, s.rows.end - row);
    f(rows == s.chunk_rows ? s.chunk : s.tail, row, rows);
    row += rows;
  }
}

float* floats_at(void* workspace, int64_t offset) {
  return static_cast<float*>(at_offset(workspace, offset));
}

/// Returns whether rows of patches are long although pixels have few channels, as in text treated
/// as a one-channel image.
bool wide_window(const ConvDims& d) { return d.x.C <= 4 && d.window.S * d.x.C >= 64; }

/// Returns whether patches and filters are many, as in the last stages of an image network.
bool is_deep(const ConvDims& d) { return patch_size(d) >= 256 && d.K >= 64; }

bool chosen(const ConvDims& d, const ConvOptions& options, bool by_shape) {
  if (!options.channels_last || options.algorithm == ConvAlgorithm::kDirect) return false;
  if (d.group > 1 || d.window.dilation_h > 1 || d.window.dilation_w > 1) return false;
  return by_shape || options.algorithm == ConvAlgorithm::kColumns;
}

/// oneDNN 2.6.3 computes a wrong dw for strided 1x1 convolutions of images with few channels, or
/// writes outside its memory: it copies the pixels that the stride selects in whole vectors of
/// channels. Observed with AVX2 (8 lanes) below 8 channels.
bool is_wrong_in_onednn(const ConvDims& d) {
  return d.group == 1 && d.window.R * d.window.S == 1 &&
         (d.window.stride_h > 1 || d.window.stride_w > 1) && d.x.C < kLanes;
}

/// Transposes each filter from [rows, columns] to [columns, rows].
void transpose_filters(Team& team, int64_t K, int64_t rows, int64_t columns, const float* from,
                       float* to) {
  const int64_t patch = rows * columns;
  team.parallel_for(K, grain_of(patch), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      elementwise_loops().transpose(rows, columns, from + k * patch, to + k * patch);
    }
  });
}

/// Returns w [K, C, R, S] reordered as [K, R, S, C] in `memory`, or w itself if both orders are the
/// same.
const float* taps_first(const ConvDims& d, Team& team, const float* w, float* memory) {
  const int64_t taps = d.window.R * d.window.S;
  if (taps == 1 || d.x.C == 1) return w;
  transpose_filters(team, d.K, d.x.C, taps, w, memory);
  return memory;
}

}  // namespace

// GFLOP/s of two threads, direct and with columns (kernel_bench; ResNet-18 at batch 32 on 32 x 32):
//
//   channels, pixels       forward    dx         dw
//   64 in 32 x 32, 3x3     154  154   129  171   156   95
//   128 in 16 x 16, 3x3    192  169   165  162   152  130
//   256 in 8 x 8, 3x3      170  145   138  151   137  145
//   512 in 4 x 4, 3x3      106  133   134  129    65  137
//   512 in 2 x 2, 3x3       40   93    86   90    29   77
//   2048 in 4 x 4, 1x1     108  142    96  147    49  120
//   1 in 128 x 128, 3x128   20  129    26  133    33  114
bool columns_suit_forward(const ConvDims& d, const ConvOptions& options) {
  return chosen(d, options, wide_window(d) || (is_deep(d) && d.y().pixels() <= 16));
}

// Columns are also chosen where R*S*C fills 16 vector lanes much better than C, because oneDNN's
// direct kernel puts input channels into the lanes: LeNet's second convolution (20 to 50 channels,
// 5x5) takes 1.46 ms instead of 1.94 ms on one thread. With too few channels, patches are slow to
// copy. With more threads than images the direct kernel is preferred, since it can divide images
// into bands.
bool columns_suit_backward_data(const ConvDims& d, const ConvOptions& options, int threads) {
  const int64_t taps = d.window.R * d.window.S;
  const bool fills_lanes = d.x.C >= 8 && d.K >= 8 && taps > 1 && lanes_used(patch_size(d)) > 0.9 &&
                           lanes_used(d.x.C) < 0.75;
  const bool is_small = is_deep(d) && d.y().pixels() <= 64 && threads <= d.x.N;
  return chosen(d, options, fills_lanes || wide_window(d) || is_small);
}

bool columns_suit_backward_weights(const ConvDims& d, const ConvOptions& options) {
  if (options.channels_last && is_wrong_in_onednn(d)) return true;  // 1x1: ignores dilations
  return chosen(d, options, wide_window(d) || (is_deep(d) && d.y().pixels() <= 64));
}

ColumnsForward::ColumnsForward(const ConvDims& d, bool bias, int threads, Team& team)
    : d_(d), team_(team) {
  const int64_t Q = d.y().W, patch = patch_size(d);
  slices_ = make_slices(d, threads, threads <= d.x.N ? d.y().H : 1, workspace_, [&](int64_t rows) {
    return Matmul({.M = rows * Q,
                   .N = d.K,
                   .K = patch,
                   .a = {patch, 1},
                   .b = {1, patch},
                   .c = {d.K, 1},
                   .bias = bias,
                   .rows_alike = true});
  });
  w_offset_ = workspace_.add(bytes_of(d.weight_elements()));
}

void ColumnsForward::run(const float* x, const float* w, const float* b, float* y,
                         void* workspace) {
  const float* inner_w = taps_first(d_, team_, w, floats_at(workspace, w_offset_));
  const int64_t row = d_.y().W * d_.K;
  team_.run(static_cast<int>(slices_.size()), [&](int i) {
    ColumnSlice& s = slices_[static_cast<size_t>(i)];
    float* columns = floats_at(workspace, s.columns_offset);
    for_chunks(s, [&](Matmul& product, int64_t first, int64_t rows) {
      column_loops().gather(d_, x, first, rows, columns);
      product.run(columns, inner_w, b, y + first * row, at_offset(workspace, s.product_offset));
    });
  });
}

ColumnsBackwardData::ColumnsBackwardData(const ConvDims& d, int threads, Team& team)
    : d_(d), team_(team) {
  const int64_t Q = d.y().W, patch = patch_size(d);
  // Patches of one image overlap in dx, so one thread computes the whole image.
  slices_ = make_slices(d, threads, d.y().H, workspace_, [&](int64_t rows) {
    return Matmul({rows * Q, patch, d.K, {d.K, 1}, {patch, 1}, {patch, 1}});
  });
  w_offset_ = workspace_.add(bytes_of(d.weight_elements()));
}

void ColumnsBackwardData::run(const float* dy, const float* w, float* dx, void* workspace) {
  const float* inner_w = taps_first(d_, team_, w, floats_at(workspace, w_offset_));
  const int64_t P = d_.y().H, image = d_.x.C * d_.x.pixels(), row = d_.y().W * d_.K;
  team_.run(static_cast<int>(slices_.size()), [&](int i) {
    ColumnSlice& s = slices_[static_cast<size_t>(i)];
    float* columns = floats_at(workspace, s.columns_offset);
    std::memset(dx + s.rows.begin / P * image, 0,
                static_cast<size_t>(bytes_of(s.rows.size() / P * image)));
    for_chunks(s, [&](Matmul& product, int64_t first, int64_t rows) {
      product.run(dy + first * row, inner_w, nullptr, columns,
                  at_offset(workspace, s.product_offset));
      column_loops().scatter_add(d_, columns, first, rows, dx);
    });
  });
}

ColumnsBackwardWeights::ColumnsBackwardWeights(const ConvDims& d, int threads, Team& team)
    : d_(d), team_(team) {
  const ImageDims y = d.y();
  const int64_t patch = patch_size(d), rows = d.x.N * y.H;
  chunk_rows_ = std::clamp<int64_t>(kSharedColumnElements / (y.W * patch), 1, rows);
  tail_rows_ = rows % chunk_rows_;
  const int64_t parts = std::min<int64_t>(threads, d.K);
  for (int64_t i = 0; i < parts; ++i) {
    Filters f;
    f.range = part_of(d.K, i, parts);
    const auto product = [&](int64_t chunk, bool accumulate) {
      return Matmul({f.range.size(),
                     patch,
                     chunk * y.W,
                     {1, d.K},
                     {patch, 1},
                     {patch, 1},
                     /*bias=*/false,
                     accumulate});
    };
    f.first = product(chunk_rows_, false);
    if (rows >= 2 * chunk_rows_) f.next = product(chunk_rows_, true);
    if (tail_rows_ > 0) f.tail = product(tail_rows_, true);
    f.product_offset = workspace_.add(
        std::max({f.first.workspace_bytes(), f.next.workspace_bytes(), f.tail.workspace_bytes()}));
    filters_.push_back(std::move(f));
  }
  columns_offset_ = workspace_.add(bytes_of(chunk_rows_ * y.W * patch));
  dw_offset_ = workspace_.add(bytes_of(d.weight_elements()));
}

void ColumnsBackwardWeights::run(const float* x, const float* dy, float* dw, float* db,
                                 void* workspace) {
  const ImageDims y = d_.y();
  const int64_t patch = patch_size(d_), taps = d_.window.R * d_.window.S, rows = d_.x.N * y.H;
  const bool in_place = taps == 1 || d_.x.C == 1;  // [K, R, S, C] equals [K, C, R, S]
  float* columns = floats_at(workspace, columns_offset_);
  float* inner_dw = in_place ? dw : floats_at(workspace, dw_offset_);
  for (int64_t first = 0; first < rows; first += chunk_rows_) {
    const int64_t count = std::min(chunk_rows_, rows - first);
    team_.parallel_for(count, grain_of(y.W * patch), [&](int64_t begin, int64_t end) {
      column_loops().gather(d_, x, first + begin, end - begin, columns + begin * y.W * patch);
    });
    team_.run(static_cast<int>(filters_.size()), [&](int i) {
      Filters& f = filters_[static_cast<size_t>(i)];
      Matmul& product = first == 0 ? f.first : count == chunk_rows_ ? f.next : f.tail;
      product.run(dy + first * y.W * d_.K + f.range.begin, columns, nullptr,
                  inner_dw + f.range.begin * patch, at_offset(workspace, f.product_offset));
    });
  }
  if (db != nullptr) {
    team_.run(static_cast<int>(filters_.size()), [&](int i) {
      const Range k = filters_[static_cast<size_t>(i)].range;
      elementwise_loops().column_sums(rows * y.W, d_.K, k.size(), dy + k.begin, db + k.begin);
    });
  }
  if (!in_place) transpose_filters(team_, d_.K, taps, d_.x.C, inner_dw, dw);
}

}  // namespace trainyard::kernels::cpu
