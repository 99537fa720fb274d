#include "kernels/conv_transpose.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Channels-last pixels are summed in blocks whose size depends only on the shape; in row-major
// images each channel is one block.
constexpr int64_t kBlockElements = 16384;

int64_t block_pixels(const ImageDims& d) { return std::max<int64_t>(1, kBlockElements / d.C); }
int64_t block_count(const ImageDims& d) {
  return (d.N * d.pixels() + block_pixels(d) - 1) / block_pixels(d);
}

}  // namespace

ConvTransposeForward::ConvTransposeForward(const ConvDims& d, const ConvOptions& options,
                                           Team& team)
    : d_(d),
      channels_last_(options.channels_last),
      team_(team),
      conv_(d, {options.channels_last, /*bias=*/false}, team) {}

void ConvTransposeForward::run(const float* x, const float* w, const float* b, float* y,
                               void* workspace) {
  conv_.run(x, w, y, workspace);
  if (b == nullptr) return;
  const int64_t K = d_.x.C, pixels = d_.x.pixels();
  if (channels_last_) {
    team_.parallel_for(d_.x.N * pixels, grain_of(K), [&](int64_t begin, int64_t end) {
      for (float* row = y + begin * K; row < y + end * K; row += K) {
        for (int64_t k = 0; k < K; ++k) row[k] += b[k];
      }
    });
    return;
  }
  team_.parallel_for(d_.x.N * K, grain_of(pixels), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* channel = y + i * pixels;
      const float value = b[i % K];
      for (int64_t p = 0; p < pixels; ++p) channel[p] += value;
    }
  });
}

int64_t image_bias_workspace_bytes(const ImageDims& d) {
  return block_count(d) * d.C * static_cast<int64_t>(sizeof(float));
}

void image_bias_gradient(const ImageDims& d, bool channels_last, const float* dy, float* db,
                         void* workspace, Team& team) {
  if (!channels_last) {
    team.parallel_for(d.C, grain_of(d.N * d.pixels()), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        double sum = 0;
        for (int64_t n = 0; n < d.N; ++n) {
          const float* channel = dy + (n * d.C + k) * d.pixels();
          for (int64_t p = 0; p < d.pixels(); ++p) sum += static_cast<double>(channel[p]);
        }
        db[k] = static_cast<float>(sum);
      }
    });
    return;
  }
  auto* partial = static_cast<float*>(workspace);  // [blocks, C]
  const int64_t rows = d.N * d.pixels(), blocks = block_count(d), size = block_pixels(d);
  team.parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* sum = partial + i * d.C;
      std::memset(sum, 0, static_cast<size_t>(d.C) * sizeof(float));
      const int64_t last = std::min(rows, (i + 1) * size);
      for (int64_t row = i * size; row < last; ++row) {
        const float* values = dy + row * d.C;
        for (int64_t k = 0; k < d.C; ++k) sum[k] += values[k];
      }
    }
  });
  for (int64_t k = 0; k < d.C; ++k) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sum += static_cast<double>(partial[i * d.C + k]);
    db[k] = static_cast<float>(sum);
  }
}

}  // namespace trainyard::kernels::cpu
