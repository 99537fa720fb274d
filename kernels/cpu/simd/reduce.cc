// Reductions of contiguous runs and of rows.
#include "kernels/cpu/simd/reduce.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kSumLanes = 32;
constexpr int64_t kBlock = 4096;

// Combines lanes pairwise: the upper 16 into the lower 16, then 8 into 8, and so on.
template <typename Fold>
float fold_lanes(float (&lane)[kSumLanes], const Fold& fold) {
  for (int64_t half = kSumLanes / 2; half >= 1; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lane[i] = fold(lane[i], lane[i + half]);
  }
  return lane[0];
}

template <typename Term>
double sum_of(int64_t count, const float* x, const Term& term) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    float lane[kSumLanes] = {};
    int64_t i = begin;
    for (; i + kSumLanes <= end; i += kSumLanes) {
#pragma omp simd
      for (int64_t l = 0; l < kSumLanes; ++l) lane[l] += term(x[i + l]);
    }
    for (int64_t l = 0; i < end; ++i, ++l) lane[l] += term(x[i]);
    total += static_cast<double>(fold_lanes(lane, [](float a, float b) { return a + b; }));
  }
  return total;
}

double sum(int64_t count, const float* x) {
  return sum_of(count, x, [](float v) { return v; });
}
double squares(int64_t count, const float* x) {
  return sum_of(count, x, [](float v) { return v * v; });
}

struct Less {
  static float pick(float acc, float v) { return v < acc || v != v ? v : acc; }
};
struct Greater {
  static float pick(float acc, float v) { return v > acc || v != v ? v : acc; }
};

template <typename Order>
float extreme(int64_t count, const float* x) {
  if (count < kSumLanes) {
    float best = x[0];
    for (int64_t i = 1; i < count; ++i) best = Order::pick(best, x[i]);
    return best;
  }
  float lane[kSumLanes];
  for (int64_t l = 0; l < kSumLanes; ++l) lane[l] = x[l];
  int64_t i = kSumLanes;
  for (; i + kSumLanes <= count; i += kSumLanes) {
#pragma omp simd
    for (int64_t l = 0; l < kSumLanes; ++l) lane[l] = Order::pick(lane[l], x[i + l]);
  }
  for (int64_t l = 0; i < count; ++i, ++l) lane[l] = Order::pick(lane[l], x[i]);
  return fold_lanes(lane, [](float a, float b) { return Order::pick(a, b); });
}

void add_row(int64_t count, const float* x, float* acc) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) acc[i] += x[i];
}
void square_row(int64_t count, const float* x, float* acc) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) acc[i] += x[i] * x[i];
}
template <typename Order>
void extreme_row(int64_t count, const float* x, float* acc) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) acc[i] = Order::pick(acc[i], x[i]);
}

void scale(int64_t count, float slope, const float* x, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) dx[i] = slope * x[i];
}
int64_t count_equal(int64_t count, float y, const float* x) {
  int64_t equal = 0;
  for (int64_t i = 0; i < count; ++i) equal += x[i] == y ? 1 : 0;
  return equal;
}
void select(int64_t count, float slope, float y, const float* x, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) dx[i] = x[i] == y ? slope : 0.0f;
}

}  // namespace

const ReduceLoops& TRAINYARD_VARIANT(reduce_loops)();
const ReduceLoops& TRAINYARD_VARIANT(reduce_loops)() {
  static constexpr ReduceLoops kLoops = {sum,
                                         squares,
                                         extreme<Less>,
                                         extreme<Greater>,
                                         add_row,
                                         square_row,
                                         extreme_row<Less>,
                                         extreme_row<Greater>,
                                         scale,
                                         count_equal,
                                         select};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
