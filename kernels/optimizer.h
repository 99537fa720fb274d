// kernels/optimizer.h: parameter updates in place; the formulas are in kernels/math/optimizers.h.
//
/// Shapes    p, g, v, m `count` elements; learning_rate and step one number, in device memory,
///           because they change every step; step counts from 0.
/// Updates   p; sgd: v unless it is null (no momentum); adam: m and v. Reads g.
/// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/math/optimizers.h"

namespace trainyard::kernels {

struct SgdParams {
  int64_t count;
  double momentum, weight_decay;
  bool nesterov;
};

struct AdamParams {
  int64_t count;
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;  // AdamW
};

namespace reference {  // T is float or double
template <typename T>
void sgd(const SgdParams& s, const T* g, const float* learning_rate, T* p, T* v);
template <typename T>
void adam(const AdamParams& s, const T* g, const float* learning_rate, const int64_t* step, T* p,
          T* m, T* v);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void sgd(const SgdParams& s, const float* g, const float* learning_rate, float* p, float* v,
         Team& team);
void adam(const AdamParams& s, const float* g, const float* learning_rate, const int64_t* step,
          float* p, float* m, float* v, Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
