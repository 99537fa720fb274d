#include "kernels/cpu/simd/columns.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

/// Calls f(image_offset, columns_offset, before, count, after) for each row of each patch: `count`
/// values are inside the image, `before` and `after` values outside it. A patch row inside the
/// image is S * C contiguous values.
template <typename F>
void for_patch_rows(const ConvDims& d, int64_t first, int64_t rows, const F& f) {
  const Window& win = d.window;
  const int64_t C = d.x.C, H = d.x.H, W = d.x.W;
  const int64_t P = (H + win.pad_top + win.pad_bottom - win.R) / win.stride_h + 1;
  const int64_t Q = (W + win.pad_left + win.pad_right - win.S) / win.stride_w + 1;
  int64_t column = 0;
  for (int64_t g = first; g < first + rows; ++g) {
    const int64_t n = g / P, h0 = (g % P) * win.stride_h - win.pad_top;
    for (int64_t q = 0; q < Q; ++q) {
      const int64_t w0 = q * win.stride_w - win.pad_left;
      // `begin` and `fits` are in [0, S], since a window may be entirely in the padding.
      const int64_t begin = w0 < 0 ? (-w0 < win.S ? -w0 : win.S) : 0;
      const int64_t fits = W - w0 < win.S ? (W - w0 > begin ? W - w0 : begin) : win.S;
      for (int64_t r = 0; r < win.R; ++r, column += win.S * C) {
        const int64_t h = h0 + r;
        if (h < 0 || h >= H) {
          f(int64_t{0}, column, win.S * C, int64_t{0}, int64_t{0});
        } else {
          f(((n * H + h) * W + w0 + begin) * C, column, begin * C, (fits - begin) * C,
            (win.S - fits) * C);
        }
      }
    }
  }
}

void gather(const ConvDims& d, const float* x, int64_t first, int64_t rows, float* columns) {
  for_patch_rows(d, first, rows,
                 [&](int64_t image, int64_t column, int64_t before, int64_t count, int64_t after) {
                   float* out = columns + column;
#pragma omp simd
                   for (int64_t i = 0; i < before; ++i) out[i] = 0;
                   out += before;
                   const float* in = x + image;
#pragma omp simd
                   for (int64_t i = 0; i < count; ++i) out[i] = in[i];
                   out += count;
#pragma omp simd
                   for (int64_t i = 0; i < after; ++i) out[i] = 0;
                 });
}

void scatter_add(const ConvDims& d, const float* columns, int64_t first, int64_t rows, float* dx) {
  for_patch_rows(d, first, rows,
                 [&](int64_t image, int64_t column, int64_t before, int64_t count, int64_t) {
                   const float* in = columns + column + before;
                   float* out = dx + image;
#pragma omp simd
                   for (int64_t i = 0; i < count; ++i) out[i] += in[i];
                 });
}

}  // namespace

const ColumnLoops& TRAINYARD_VARIANT(column_loops)();
const ColumnLoops& TRAINYARD_VARIANT(column_loops)() {
  static constexpr ColumnLoops kLoops = {gather, scatter_add};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
