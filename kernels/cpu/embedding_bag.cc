#include "kernels/embedding_bag.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd/embedding_bag.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

float scale_of(const EmbeddingBagDims& d, const int32_t* token) {
  const int64_t count = d.T - std::count(token, token + d.T, d.padding);
  return d.mean && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f;
}

constexpr int64_t kColumnStep = 16;

}  // namespace

void embedding_bag(const EmbeddingBagDims& d, const float* table, const int32_t* token, float* y,
                   Run run) {
  check(d, table, token, y);
  const auto& loops = embedding_bag_loops();
  run.team.parallel_for(d.N, grain_of(d.T * d.D), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int32_t* tokens = token + n * d.T;
      const float scale = scale_of(d, tokens);
      float* row = y + n * d.D;
      std::memset(row, 0, static_cast<size_t>(d.D) * sizeof(float));
      for (int64_t t = 0; t < d.T; ++t) {
        if (tokens[t] != d.padding) loops.add_scaled(d.D, scale, table + tokens[t] * d.D, row);
      }
    }
  });
}

// Several rows may name the same token, so each thread processes its own columns of all rows.
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const float* dy,
                            float* dtable, Run run) {
  check(d, token, dy, dtable);
  const auto& loops = embedding_bag_loops();
  const int64_t blocks = (d.D + kColumnStep - 1) / kColumnStep;
  run.team.parallel_for(
      blocks, grain_of((d.N * d.T + d.V) * kColumnStep), [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kColumnStep;
        const int64_t columns = std::min(end * kColumnStep, d.D) - first;
        for (int64_t v = 0; v < d.V; ++v) {
          std::memset(dtable + v * d.D + first, 0, static_cast<size_t>(columns) * sizeof(float));
        }
        for (int64_t n = 0; n < d.N; ++n) {
          const int32_t* tokens = token + n * d.T;
          const float scale = scale_of(d, tokens);
          const float* row = dy + n * d.D + first;
          for (int64_t t = 0; t < d.T; ++t) {
            if (tokens[t] == d.padding) continue;
            loops.add_scaled(columns, scale, row, dtable + tokens[t] * d.D + first);
          }
        }
      });
}

}  // namespace trainyard::kernels::cpu
