#include "kernels/elementwise.h"

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"
#include "kernels/layout.h"

#include <cstring>

namespace trainyard::kernels::cpu {

void fill(int64_t count, float value, float* y, Run run) {
  check_fill(count, y);
  run.team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    elementwise_loops().fill(end - begin, value, y + begin);
  });
}

void copy(int64_t bytes, const std::byte* x, std::byte* y, Team& team) {
  if (x == y) return;
  constexpr int64_t kBytesPerThread = kElementsPerThread * static_cast<int64_t>(sizeof(float));
  team.parallel_for(bytes, kBytesPerThread, [&](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin));
  });
}

void nchw_to_nhwc(ImageDims d, const float* x, float* y, Run run) {
  check(d, x, y);
  const int64_t image = d.C * d.pixels();
  run.team.parallel_for(d.N, grain_of(image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      elementwise_loops().transpose(d.C, d.pixels(), x + n * image, y + n * image);
    }
  });
}

void nhwc_to_nchw(ImageDims d, const float* x, float* y, Run run) {
  check(d, x, y);
  const int64_t image = d.C * d.pixels();
  run.team.parallel_for(d.N, grain_of(image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      elementwise_loops().transpose(d.pixels(), d.C, x + n * image, y + n * image);
    }
  });
}

}  // namespace trainyard::kernels::cpu
