// Access   one thread for each pair of a head, or for four adjacent pairs, which it reads in two
//          loads of four elements; further threads copy the numbers that are not rotated.
// Time     bytes / 4.8 TB/s on an H200, of x and y; the tables are read from the cache by all
//          heads.
#include "kernels/rotary.h"

#include <cmath>

#include "kernels/cuda/row.h"
#include "kernels/cuda/walk.h"

namespace trainyard::kernels::cuda {
namespace {

struct Frequencies {
  float v[kRotaryPairsMax];
};

TRAINYARD_KERNEL void rotary_angles(int64_t rows, int64_t pairs, Frequencies frequencies,
                                    float factor, const int32_t* positions, float* cos,
                                    float* sin) {
  for (int64_t i = thread_index(); i < rows * pairs; i += thread_count()) {
    const int64_t r = i / pairs;
    const auto position = static_cast<float>(positions == nullptr ? r : positions[r]);
    const float angle = position * frequencies.v[i - r * pairs];
    cos[i] = cosf(angle) * factor;
    sin[i] = sinf(angle) * factor;
  }
}

/// The units of a head: first those of kStep pairs each, then those of kStep copied numbers.
struct RotaryUnits {
  Divisor per_head, heads;
  int64_t rotated;
};

template <int kStep>
TRAINYARD_KERNEL void rotate(RotaryDims d, RotaryUnits units, In x, const float* cos,
                             const float* sin, const int32_t* positions, Out y) {
  const int64_t count = d.rows * d.H * units.per_head.value;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t head = units.per_head.quotient(i), unit = i - head * units.per_head.value;
    if (unit >= units.rotated) {
      const int64_t at = head * d.D + 2 * d.pairs + (unit - units.rotated) * kStep;
      store<kStep>(y, at, load<kStep>(x, at));
      continue;
    }
    const int64_t row = units.heads.quotient(head), j = unit * kStep;
    const int64_t table = positions == nullptr ? row % d.table_rows : positions[row];
    const Pack<kStep> c = load<kStep>(In{cos}, table * d.pairs + j);
    const Pack<kStep> s = load<kStep>(In{sin}, table * d.pairs + j);
    // Interleaved, the two packs are adjacent, and the numbers of a pair adjacent in them.
    const int64_t at = head * d.D + j * d.step();
    const int64_t behind = at + (d.interleaved ? kStep : d.pairs);
    const Pack<kStep> a = load<kStep>(x, at), b = load<kStep>(x, behind);
    Pack<kStep> to_a, to_b;
    TRAINYARD_UNROLL
    for (int k = 0; k < kStep; ++k) {
      const bool in_a = 2 * k < kStep;
      const float first = !d.interleaved ? a.v[k] : in_a ? a.v[2 * k % kStep] : b.v[2 * k % kStep];
      const float second = !d.interleaved || kStep == 1 ? b.v[k]
                           : in_a                       ? a.v[(2 * k + 1) % kStep]
                                                        : b.v[(2 * k + 1) % kStep];
      const float sine = d.inverse ? -s.v[k] : s.v[k];
      const float low = c.v[k] * first - sine * second, high = sine * first + c.v[k] * second;
      if (!d.interleaved || kStep == 1) {
        to_a.v[k] = low;
        to_b.v[k] = high;
      } else if (in_a) {
        to_a.v[2 * k % kStep] = low;
        to_a.v[(2 * k + 1) % kStep] = high;
      } else {
        to_b.v[2 * k % kStep] = low;
        to_b.v[(2 * k + 1) % kStep] = high;
      }
    }
    store<kStep>(y, at, to_a);
    store<kStep>(y, behind, to_b);
  }
}

}  // namespace

void rotary_tables(const RotaryTableParams& p, const int32_t* positions, float* cos, float* sin,
                   Run run) {
  check_rotary_tables(p, cos, sin);
  Frequencies frequencies{};
  const auto pairs = static_cast<int64_t>(p.frequencies.size());
  for (size_t j = 0; j < p.frequencies.size(); ++j) {
    frequencies.v[j] = static_cast<float>(p.frequencies[j]);
  }
  launch(grid_for(p.rows * pairs), run.stream, rotary_angles, p.rows, pairs, frequencies,
         static_cast<float>(p.factor), positions, cos, sin);
}

void rotary(const RotaryDims& d, const RotaryOperands<Views>& o, Run run) {
  check(d, o);
  const auto start = [&](auto kernel, int64_t step) {
    const int64_t rotated = d.pairs / step, per_head = rotated + (d.D - 2 * d.pairs) / step;
    const RotaryUnits units{Divisor(per_head), Divisor(d.H), rotated};
    launch(grid_for(d.rows * d.H * per_head), run.stream, kernel, d, units, o.x, o.cos, o.sin,
           o.positions, o.y);
  };
  const bool fours = d.pairs % 4 == 0 && d.D % 4 == 0 && takes_four(o.x) && takes_four(o.y) &&
                     takes_four(In{o.cos}) && takes_four(In{o.sin});
  if (fours) {
    start(rotate<4>, 4);
  } else {
    start(rotate<1>, 1);
  }
}

}  // namespace trainyard::kernels::cuda
