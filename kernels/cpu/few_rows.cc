#include "kernels/cpu/few_rows.h"

#include <algorithm>

#include "kernels/cpu/simd/few_rows.h"
#include "kernels/cpu/stored.h"

namespace trainyard::kernels::cpu {
namespace {

// A chunk is long, since the processor must first find out what to fetch ahead (two threads of an
// AMD EPYC 9004 read 37 GB/s in chunks of 128 KiB, 43 in chunks of 512), but each thread has one if
// that takes longer than waking it, about 3 us.
constexpr int64_t kChunkBytes = int64_t{512} << 10, kChunkBytesMin = int64_t{48} << 10;
// The results of a chunk fill whole cache lines.
constexpr int64_t kColumnStep = 16;

int64_t chunk_columns(const GemmDims& d, Stored stored, int64_t threads) {
  const int64_t bytes = d.K * d.F * size_of(stored);
  const int64_t rounds = (bytes + threads * kChunkBytes - 1) / (threads * kChunkBytes);
  const int64_t chunks = std::clamp<int64_t>(bytes / kChunkBytesMin, 1, rounds * threads);
  const int64_t step = chunks * kColumnStep;
  return (d.K + step - 1) / step * kColumnStep;
}

template <typename Weight>
void multiply(const FewRows<Weight>& all, int64_t chunk, FewRowsLoop<Weight> loop, Team& team) {
  team.run_chunks((all.columns + chunk - 1) / chunk, [&](int64_t index) {
    const int64_t k = index * chunk;
    FewRows<Weight> part = all;
    part.columns = std::min(chunk, all.columns - k);
    part.w += k * all.F;
    if (all.b != nullptr) part.b += k;
    part.y += k;
    loop(part);
  });
}

}  // namespace

void multiply_few_rows(const GemmDims& d, Stored stored, const float* x, const void* w,
                       const float* b, float* y, Team& team) {
  const FewRowsLoops& loops = few_rows_loops();
  const auto multiply_as = [&]<typename Weight>(FewRowsLoop<Weight> loop) {
    const FewRows<Weight> all{d.N, d.K, d.F, x, static_cast<const Weight*>(w), b, d.adds, y, d.K};
    multiply(all, chunk_columns(d, stored, team.size()), loop, team);
  };
  switch (stored) {
    case Stored::kF32:
      return multiply_as(loops.f32);
    case Stored::kBf16:
      return multiply_as(loops.bf16);
    case Stored::kF16:
      return multiply_as(loops.f16);
  }
}

}  // namespace trainyard::kernels::cpu
