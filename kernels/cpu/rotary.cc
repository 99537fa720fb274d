#include "kernels/rotary.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/rotary.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kAngleElements = 64;  // a sine and a cosine take as long as this many elements

}  // namespace

void rotary_tables(const RotaryTableParams& p, const int32_t* positions, float* cos, float* sin,
                   Run run) {
  check_rotary_tables(p, cos, sin);
  const auto pairs = std::ssize(p.frequencies);
  run.team.parallel_for(p.rows, grain_of(kAngleElements * pairs), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<float>(positions == nullptr ? r : positions[r]);
      for (int64_t j = 0; j < pairs; ++j) {
        const float angle = position * static_cast<float>(p.frequencies[static_cast<size_t>(j)]);
        cos[r * pairs + j] = std::cos(angle) * static_cast<float>(p.factor);
        sin[r * pairs + j] = std::sin(angle) * static_cast<float>(p.factor);
      }
    }
  });
}

void rotary(const RotaryDims& d, const RotaryOperands<float>& o, Run run) {
  check(d, o);
  const RotaryLoops& loops = rotary_loops();
  const auto rotate = d.interleaved ? loops.neighbours : loops.halves;
  const float sign = d.inverse ? -1.0f : 1.0f;
  run.team.parallel_for(d.rows, grain_of(d.H * d.D), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = (o.positions == nullptr ? r % d.table_rows : o.positions[r]) * d.pairs;
      for (int64_t h = r * d.H; h < (r + 1) * d.H; ++h) {
        const float* x = o.x + h * d.D;
        float* y = o.y + h * d.D;
        rotate(d.pairs, sign, o.cos + at, o.sin + at, x, y);
        if (x != y) std::copy(x + 2 * d.pairs, x + d.D, y + 2 * d.pairs);
      }
    }
  });
}

}  // namespace trainyard::kernels::cpu
