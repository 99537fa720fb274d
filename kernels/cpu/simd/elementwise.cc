// Loops over contiguous arrays and small matrices.
#include "kernels/cpu/simd/elementwise.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

void add(int64_t count, const float* a, const float* b, float* c) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
}

template <typename Half>
void widen(int64_t count, const Half* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = math::widen(x[i]);
}

template <typename Half>
void narrow(int64_t count, const float* x, Half* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = math::narrow<Half>(x[i]);
}

void fill(int64_t count, float value, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = value;
}

void column_sums(int64_t rows, int64_t stride, int64_t columns, const float* x, float* sum) {
  constexpr int64_t kChunk = 64;  // columns that are summed in registers over all rows
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    float acc[kChunk] = {};
    const int64_t width = columns - begin < kChunk ? columns - begin : kChunk;
    if (width == kChunk) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * stride + begin;
        for (int64_t c = 0; c < kChunk; ++c) acc[c] += row[c];
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * stride + begin;
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) acc[c] += row[c];
      }
    }
    for (int64_t c = 0; c < width; ++c) sum[begin + c] = acc[c];
  }
}

void transpose(int64_t rows, int64_t columns, const float* x, float* y) {
  constexpr int64_t kTile = 16;  // rows whose lines stay cached during a pass over columns
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t r1 = r0 + kTile < rows ? r0 + kTile : rows;
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r) y[c * rows + r] = x[r * columns + c];
    }
  }
}

template <bool kColumns>
void drop(const DropoutParams& p, uint64_t step, int64_t begin, int64_t end, const float* x,
          float* y) {
  const uint32_t threshold = math::dropout_threshold(p.ratio);
  const float scale = static_cast<float>(1 / (1 - p.ratio));
  constexpr int64_t kBatch = 16;  // blocks drawn together, one per lane
  for (int64_t first = begin; first < end; first += kBatch) {
    uint32_t random[4][kBatch];
#pragma omp simd
    for (int64_t lane = 0; lane < kBatch; ++lane) {
      const int64_t at = kColumns ? p.columns.block(first + lane) : first + lane;
      const math::Philox4 block =
          math::philox_block(p.seed, p.stream, step, static_cast<uint64_t>(p.first_block + at));
      for (int k = 0; k < 4; ++k) random[k][lane] = block.v[k];
    }
    const int64_t last = first + kBatch < end ? first + kBatch : end;
    const int64_t stop = 4 * last < p.count ? 4 * last : p.count;
    for (int64_t i = 4 * first; i < stop; ++i) {
      const uint32_t drawn = random[i % 4][i / 4 - first];
      y[i] = math::dropout_keeps(drawn, threshold) ? x[i] * scale : 0.0f;
    }
  }
}

void dropout(const DropoutParams& p, uint64_t step, int64_t begin, int64_t end, const float* x,
             float* y) {
  (p.columns.own == 0 ? drop<false> : drop<true>)(p, step, begin, end, x, y);
}

}  // namespace

const ElementwiseLoops& TRAINYARD_VARIANT(elementwise_loops)();
const ElementwiseLoops& TRAINYARD_VARIANT(elementwise_loops)() {
  static constexpr ElementwiseLoops kLoops = {add,
                                              {widen<math::Bf16>, narrow<math::Bf16>},
                                              {widen<math::F16>, narrow<math::F16>},
                                              fill,
                                              column_sums,
                                              transpose,
                                              dropout};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
