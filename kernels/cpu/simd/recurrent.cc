// Steps of recurrent cells around the formulas in kernels/math/recurrent.h.
#include "kernels/cpu/simd/recurrent.h"

#include "kernels/cpu/simd/variant.h"
#include "kernels/math/recurrent.h"

namespace trainyard::kernels::cpu {
namespace {

void add_row(int64_t count, const float* x, float* y) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] += x[j];
}

void lstm_forward(const RecurrentStep& s, const float* recurrent, const float* c_before,
                  float* gates, float* c, float* y) {
  const int64_t H = s.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* r = recurrent + n * 4 * H;
    const float* before = c_before + n * s.stride_before;
    float* a = gates + n * s.steps * 4 * H;
    float* c_row = c + n * s.steps * H;
    float* y_row = y + n * s.steps * H;
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      const auto g = math::Lstm::activate(a[j] + r[j], a[j + H] + r[j + H],
                                          a[j + 2 * H] + r[j + 2 * H], a[j + 3 * H] + r[j + 3 * H]);
      const float cell = g.f * before[j] + g.i * g.g;
      a[j] = g.i;
      a[j + H] = g.f;
      a[j + 2 * H] = g.g;
      a[j + 3 * H] = g.o;
      c_row[j] = cell;
      y_row[j] = g.o * math::tanh(cell);
    }
  }
}

void gru_forward(const RecurrentStep& s, const float* recurrent, const float* h_before,
                 float* gates, float* hn, float* y) {
  const int64_t H = s.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* r = recurrent + n * 3 * H;
    const float* before = h_before + n * s.stride_before;
    float* a = gates + n * s.steps * 3 * H;
    float* hn_row = hn + n * s.steps * H;
    float* y_row = y + n * s.steps * H;
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      const float candidate = r[j + 2 * H];
      const auto g = math::Gru::activate(a[j] + r[j], a[j + H] + r[j + H], a[j + 2 * H], candidate);
      a[j] = g.r;
      a[j + H] = g.z;
      a[j + 2 * H] = g.n;
      hn_row[j] = candidate;
      y_row[j] = (1.0f - g.z) * g.n + g.z * before[j];
    }
  }
}

void lstm_backward(const RecurrentStep& s, const float* gates, const float* c,
                   const float* c_before, const float* dy, float* dh, float* dc, float* da) {
  const int64_t H = s.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* a = gates + n * s.steps * 4 * H;
    const float* c_row = c + n * s.steps * H;
    const float* before = c_before + n * s.stride_before;
    float* dh_row = dh + n * H;
    float* dc_row = dc + n * H;
    float* d = da + n * s.steps * 4 * H;
    if (dy != nullptr) add_row(H, dy + n * s.steps * H, dh_row);
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      float cell = dc_row[j];
      const auto g = math::Lstm::backward<float>({a[j], a[j + H], a[j + 2 * H], a[j + 3 * H]},
                                                 c_row[j], before[j], dh_row[j], cell);
      dc_row[j] = cell;
      d[j] = g.i;
      d[j + H] = g.f;
      d[j + 2 * H] = g.g;
      d[j + 3 * H] = g.o;
    }
  }
}

void gru_backward(const RecurrentStep& s, const float* gates, const float* hn,
                  const float* h_before, const float* dy, float* dh, float* da, float* db) {
  const int64_t H = s.H;
  for (int64_t n = 0; n < s.rows; ++n) {
    const float* a = gates + n * s.steps * 3 * H;
    const float* hn_row = hn + n * s.steps * H;
    const float* before = h_before + n * s.stride_before;
    float* dh_row = dh + n * H;
    float* d = da + n * s.steps * 3 * H;
    float* e = db + n * s.steps * 3 * H;
    if (dy != nullptr) add_row(H, dy + n * s.steps * H, dh_row);
#pragma omp simd
    for (int64_t j = 0; j < H; ++j) {
      float direct = dh_row[j];
      const auto g =
          math::Gru::backward<float>({a[j], a[j + H], a[j + 2 * H]}, hn_row[j], before[j], direct);
      dh_row[j] = direct;
      d[j] = g.r;
      d[j + H] = g.z;
      d[j + 2 * H] = g.n;
      e[j] = g.r;
      e[j + H] = g.z;
      e[j + 2 * H] = g.n * a[j];
    }
  }
}

}  // namespace

const RecurrentLoops& TRAINYARD_VARIANT(recurrent_loops)();
const RecurrentLoops& TRAINYARD_VARIANT(recurrent_loops)() {
  static constexpr RecurrentLoops kLoops = {lstm_forward, gru_forward, lstm_backward, gru_backward};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
