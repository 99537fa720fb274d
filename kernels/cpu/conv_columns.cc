#include "kernels/cpu/conv_columns.h"

#include <cstring>

#include "kernels/cpu/simd/columns.h"
#include "kernels/cpu/simd/elementwise.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kColumnElements = 128 * 1024;  // of one chunk: a quarter of a 2 MiB cache
constexpr int64_t kLanes = 16;

int64_t patch_size(const ConvDims& d) { return d.window.R * d.window.S * d.x.C; }

double lanes_used(int64_t channels) {
  const int64_t filled = (channels + kLanes - 1) / kLanes * kLanes;
  return static_cast<double>(channels) / static_cast<double>(filled);
}

int64_t bytes_of(int64_t elements) { return elements * static_cast<int64_t>(sizeof(float)); }

/// `make_product(rows)` prepares the matmul over that many output rows.
template <typename F>
std::vector<ColumnSlice> make_slices(const ConvDims& d, int parts, WorkspaceLayout& workspace,
                                     const F& make_product) {
  const ImageDims y = d.y();
  std::vector<ColumnSlice> slices(static_cast<size_t>(parts));
  for (int i = 0; i < parts; ++i) {
    ColumnSlice& s = slices[static_cast<size_t>(i)];
    s.images = part_of(d.x.N, i, parts);
    const int64_t rows = s.images.size() * y.H;
    s.chunk_rows = std::clamp<int64_t>(kColumnElements / (y.W * patch_size(d)), 1, rows);
    s.tail_rows = rows % s.chunk_rows;
    s.chunk = make_product(s.chunk_rows);
    if (s.tail_rows > 0) s.tail = make_product(s.tail_rows);
    s.product_offset = workspace.add(std::max(s.chunk.workspace_bytes(), s.tail.workspace_bytes()));
    s.columns_offset = workspace.add(bytes_of(s.chunk_rows * y.W * patch_size(d)));
  }
  return slices;
}

/// Calls f(product, first_row, rows) for each chunk of a slice; rows are numbered over the batch.
template <typename F>
void for_chunks(const ConvDims& d, ColumnSlice& s, const F& f) {
  const int64_t P = d.y().H;
  const int64_t end = s.images.end * P;
  for (int64_t row = s.images.begin * P; row < end;) {
    const int64_t rows = std::min(s.chunk_rows, end - row);
    f(rows == s.chunk_rows ? s.chunk : s.tail, row, rows);
    row += rows;
  }
}

float* floats_at(void* workspace, int64_t offset) {
  return static_cast<float*>(at_offset(workspace, offset));
}

}  // namespace

// Too few channels make patches that are slow to copy, one tap has nothing to gain.
bool columns_suit_backward_data(const ConvDims& d) {
  if (d.group > 1 || d.window.dilation_h > 1 || d.window.dilation_w > 1) return false;
  return d.x.C >= 8 && d.K >= 8 && d.window.R * d.window.S > 1 && lanes_used(patch_size(d)) > 0.9 &&
         lanes_used(d.x.C) < 0.75;
}

ColumnsBackwardData::ColumnsBackwardData(const ConvDims& d, int parts, Team& team)
    : d_(d), team_(team) {
  const int64_t Q = d.y().W, patch = patch_size(d);
  slices_ = make_slices(d, parts, workspace_, [&](int64_t rows) {
    return Matmul({rows * Q, patch, d.K, {d.K, 1}, {patch, 1}, {patch, 1}});
  });
  w_offset_ = workspace_.add(bytes_of(d.weight_elements()));
}

void ColumnsBackwardData::run(const float* dy, const float* w, float* dx, void* workspace) {
  const int64_t patch = patch_size(d_), taps = d_.window.R * d_.window.S;
  float* inner_w = floats_at(workspace, w_offset_);  // [K, R, S, C]
  team_.parallel_for(d_.K, grain_of(patch), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      elementwise_loops().transpose(d_.x.C, taps, w + k * patch, inner_w + k * patch);
    }
  });
  const int64_t image = d_.x.C * d_.x.pixels(), row = d_.y().W * d_.K;
  team_.run(static_cast<int>(slices_.size()), [&](int i) {
    ColumnSlice& s = slices_[static_cast<size_t>(i)];
    float* columns = floats_at(workspace, s.columns_offset);
    std::memset(dx + s.images.begin * image, 0,
                static_cast<size_t>(bytes_of(s.images.size() * image)));
    for_chunks(d_, s, [&](Matmul& product, int64_t first, int64_t rows) {
      product.run(dy + first * row, inner_w, nullptr, columns,
                  at_offset(workspace, s.product_offset));
      column_loops().scatter_add(d_, columns, first, rows, dx);
    });
  });
}

}  // namespace trainyard::kernels::cpu
