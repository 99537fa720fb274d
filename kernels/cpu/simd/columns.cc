#include "kernels/cpu/simd/columns.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

void scatter_add(const ConvDims& d, const float* columns, int64_t first, int64_t rows, float* dx) {
  const Window& win = d.window;
  const int64_t C = d.x.C, H = d.x.H, W = d.x.W;
  const int64_t P = (H + win.pad_top + win.pad_bottom - win.R) / win.stride_h + 1;
  const int64_t Q = (W + win.pad_left + win.pad_right - win.S) / win.stride_w + 1;
  const float* patch_row = columns;
  for (int64_t g = first; g < first + rows; ++g) {
    const int64_t n = g / P, h0 = (g % P) * win.stride_h - win.pad_top;
    for (int64_t q = 0; q < Q; ++q) {
      const int64_t w0 = q * win.stride_w - win.pad_left;
      const int64_t begin = w0 < 0 ? -w0 : 0;
      const int64_t end = w0 + win.S > W ? W - w0 : win.S;
      const int64_t count = (end - begin) * C;  // below 1 for a window in the padding
      for (int64_t r = 0; r < win.R; ++r, patch_row += win.S * C) {
        const int64_t h = h0 + r;
        if (h < 0 || h >= H) continue;
        // A patch row inside the image is S * C neighbouring values.
        const float* in = patch_row + begin * C;
        float* out = dx + ((n * H + h) * W + w0 + begin) * C;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) out[i] += in[i];
      }
    }
  }
}

}  // namespace

const ColumnLoops& TRAINYARD_VARIANT(column_loops)();
const ColumnLoops& TRAINYARD_VARIANT(column_loops)() {
  static constexpr ColumnLoops kLoops = {scatter_add};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
