#include "kernels/layer_norm.h"

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Rows are cut into blocks whose size depends on the shape alone; dscale and db are the sums of the
// blocks' sums, in their order.
constexpr int64_t kBlockElements = 16384;

struct Blocks {
  int64_t rows, block_rows, count;
  explicit Blocks(const LayerNormDims& d) : rows(d.rows) {
    block_rows = std::max<int64_t>(1, kBlockElements / d.width);
    count = (rows + block_rows - 1) / block_rows;
  }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
};

}  // namespace

void layer_norm_forward(const LayerNormDims& d, const float* x, const float* scale, const float* b,
                        float* y, float* mean, float* inv_std, Team& team) {
  team.parallel_for(d.rows, grain_of(2 * d.width), [&](int64_t begin, int64_t end) {
    row_loops().layer_norm_forward(d, end - begin, x + begin * d.width, scale, b,
                                   y + begin * d.width, mean == nullptr ? nullptr : mean + begin,
                                   inv_std == nullptr ? nullptr : inv_std + begin);
  });
}

int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d) {
  return 2 * Blocks(d).count * d.width * static_cast<int64_t>(sizeof(float));
}

void layer_norm_backward(const LayerNormDims& d, const float* x, const float* scale,
                         const float* mean, const float* inv_std, const float* dy, float* dx,
                         float* dscale, float* db, void* workspace, Team& team) {
  const Blocks blocks(d);
  const int64_t W = d.width;
  float* scale_sums = static_cast<float*>(workspace);
  float* shift_sums = scale_sums + blocks.count * W;
  team.parallel_for(blocks.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i * blocks.block_rows, at = row * W;
      row_loops().layer_norm_backward(d, blocks.rows_of(i), x + at, scale,
                                      mean == nullptr ? nullptr : mean + row, inv_std + row,
                                      dy + at, dx == nullptr ? nullptr : dx + at,
                                      scale_sums + i * W, shift_sums + i * W);
    }
  });
  const auto add_up = [&](const float* sums, float* out) {
    if (out == nullptr) return;
    std::copy_n(sums, W, out);
    for (int64_t i = 1; i < blocks.count; ++i) row_loops().accumulate(W, sums + i * W, out);
  };
  add_up(scale_sums, dscale);
  add_up(shift_sums, db);
}

}  // namespace trainyard::kernels::cpu
