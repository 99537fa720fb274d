// kernels/cpu/simd/update.h: optimizer updates over contiguous arrays; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/math/optimizers.h"

namespace trainyard::kernels::cpu {

struct UpdateLoops {
  void (*sgd)(const math::SgdConstants<float>& c, int64_t count, const float* g, float* p);
  void (*sgd_momentum)(const math::SgdConstants<float>& c, int64_t count, const float* g, float* p,
                       float* v);
  void (*adam)(const math::AdamConstants<float>& c, int64_t count, const float* g, float* p,
               float* m, float* v);
  // `a` is null unless centered; `b` is null without momentum.
  void (*rmsprop)(const math::RmspropConstants<float>& c, int64_t count, const float* g, float* p,
                  float* square, float* a, float* b);
  void (*lion)(const math::LionConstants<float>& c, int64_t count, const float* g, float* p,
               float* m);
  void (*moving_average)(float new_share, int64_t count, const float* p, float* average);
  // y = clip(g * scale); y may be g
  void (*clip_gradient)(float scale, float bound, int64_t count, const float* g, float* y);
  // sum += share g
  void (*accumulate)(float share, int64_t count, const float* g, float* sum);
  void (*scale)(float factor, int64_t count, const float* x, float* y);        // y = factor x
  void (*combine)(float a, const float* x, float b, int64_t count, float* y);  // y = a x + b y
  double (*square_sum)(int64_t count, const float* x);

  // Adafactor: adds the squares of one row to `column`, and returns their sum.
  double (*row_squares)(int64_t columns, const float* g, double* column);
  // Returns the sum of squares of the updates of a row, whose elements have the variances column[c]
  // * factor.
  double (*update_squares)(int64_t columns, const float* g, const float* column, float factor,
                           float floor);
  // p = kept p - rate update
  void (*factored_update)(int64_t columns, const float* g, const float* column, float factor,
                          float floor, float kept, float rate, float* p);
  // m += (1 - momentum) (g - m); then x = m, or with Nesterov x = g + momentum (m - g)
  void (*muon_momentum)(float momentum, bool nesterov, int64_t count, const float* g, float* m,
                        float* x);
};
const UpdateLoops& update_loops();

}  // namespace trainyard::kernels::cpu
