// kernels/math/optimizers.h: one parameter's update by SGD, Adam and AdamW, the formulas of
// PyTorch's torch.optim (single-tensor form), so that runs can be compared step by step.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::math {

template <typename T>
struct SgdConstants {
  T learning_rate, momentum, weight_decay;
  bool nesterov;
};

// g' = g + weight_decay p;  v = momentum v + g';  p -= lr (nesterov ? g' + momentum v : v).
// A zero v at the first step is PyTorch's "v = g'". Without momentum `v` is not touched.
template <typename T>
TRAINYARD_HD inline void sgd(const SgdConstants<T>& c, T g, T& p, T* v) {
  g += c.weight_decay * p;
  if (v != nullptr) {
    *v = c.momentum * *v + g;
    g = c.nesterov ? g + c.momentum * *v : *v;
  }
  p -= c.learning_rate * g;
}

template <typename T>
struct AdamConstants {
  T step_size;                               // lr / (1 - beta1^t)
  T inverse_root;                            // 1 / sqrt(1 - beta2^t)
  T beta1_rest, beta2, beta2_rest, epsilon;  // *_rest = 1 - beta
  T coupled_decay;                           // Adam: weight_decay, added to the gradient
  T kept_share;                              // AdamW: 1 - lr weight_decay, multiplies the parameter
};

/// Computed in double whatever T is: 1 - beta^t loses most digits of a float in the first steps.
/// `step` counts from 0. Source: Kingma, Ba (2015), algorithm 1; Loshchilov, Hutter (2019),
/// algorithm 2.
template <typename T>
TRAINYARD_HD inline AdamConstants<T> adam_constants(double learning_rate, double beta1,
                                                    double beta2, double epsilon,
                                                    double weight_decay, bool decoupled,
                                                    int64_t step) {
  const double t = static_cast<double>(step) + 1;
  return {static_cast<T>(learning_rate / (1 - std::pow(beta1, t))),
          static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, t))),
          static_cast<T>(1 - beta1),
          static_cast<T>(beta2),
          static_cast<T>(1 - beta2),
          static_cast<T>(epsilon),
          static_cast<T>(decoupled ? 0 : weight_decay),
          static_cast<T>(decoupled ? 1 - learning_rate * weight_decay : 1)};
}

// m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  p -= step_size m / (sqrt(v) ir + eps).
template <typename T>
TRAINYARD_HD inline void adam(const AdamConstants<T>& c, T g, T& p, T& m, T& v) {
  p *= c.kept_share;
  g += c.coupled_decay * p;
  m += c.beta1_rest * (g - m);
  v = c.beta2 * v + c.beta2_rest * g * g;
  p -= c.step_size * m / (std::sqrt(v) * c.inverse_root + c.epsilon);
}

}  // namespace trainyard::math
