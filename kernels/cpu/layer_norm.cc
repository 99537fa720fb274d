#include "kernels/layer_norm.h"

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Rows are divided into blocks whose size depends only on the shape; dscale and db are the sums of
// the blocks' sums, added in order.
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

void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<float>& o, Run run) {
  check(d, o);
  run.team.parallel_for(d.rows, grain_of(2 * d.width), [&](int64_t begin, int64_t end) {
    LayerNormDims span = d;
    span.rows = end - begin;
    row_loops().layer_norm_forward(span,
                                   {.x = o.x + begin * d.width,
                                    .scale = o.scale,
                                    .b = o.b,
                                    .y = o.y + begin * d.width,
                                    .mean = o.mean == nullptr ? nullptr : o.mean + begin,
                                    .inv_std = o.inv_std == nullptr ? nullptr : o.inv_std + begin});
  });
}

int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d) {
  return 2 * Blocks(d).count * d.width * static_cast<int64_t>(sizeof(float));
}

void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<float>& o, Run run) {
  check(d, o);
  const Blocks blocks(d);
  const int64_t W = d.width;
  float* scale_sums = workspace_of<float>("layer_norm_backward", run);
  float* shift_sums = scale_sums + blocks.count * W;
  run.team.parallel_for(blocks.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i * blocks.block_rows, at = row * W;
      LayerNormDims span = d;
      span.rows = blocks.rows_of(i);
      row_loops().layer_norm_backward(span, {.x = o.x + at,
                                             .scale = o.scale,
                                             .mean = o.mean == nullptr ? nullptr : o.mean + row,
                                             .inv_std = o.inv_std + row,
                                             .dy = o.dy + at,
                                             .dx = o.dx == nullptr ? nullptr : o.dx + at,
                                             .dscale = scale_sums + i * W,
                                             .db = shift_sums + i * W});
    }
  });
  const auto add_up = [&](const float* sums, float* out) {
    if (out == nullptr) return;
    std::copy_n(sums, W, out);
    for (int64_t i = 1; i < blocks.count; ++i) row_loops().accumulate(W, sums + i * W, out);
  };
  add_up(scale_sums, o.dscale);
  add_up(shift_sums, o.db);
}

}  // namespace trainyard::kernels::cpu
