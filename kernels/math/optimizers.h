// kernels/math/optimizers.h: the update of one parameter. The formulas follow PyTorch's torch.optim
// (single-tensor form) where it has them, so that runs can be compared step by step.
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
// A v of 0 before the first step gives PyTorch's initialization v = g'. Without momentum `v` is
// null.
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

/// Computes the constants in double for every T, because 1 - beta^t loses most digits of a float in
/// the first steps. `step` counts from 0. Sources: Kingma, Ba (2015), algorithm 1; Loshchilov,
/// Hutter (2019), algorithm 2.
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

// m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;
// p -= step_size m / (sqrt(v) inverse_root + epsilon).
template <typename T>
TRAINYARD_HD inline void adam(const AdamConstants<T>& c, T g, T& p, T& m, T& v) {
  p *= c.kept_share;
  g += c.coupled_decay * p;
  m += c.beta1_rest * (g - m);
  v = c.beta2 * v + c.beta2_rest * g * g;
  p -= c.step_size * m / (std::sqrt(v) * c.inverse_root + c.epsilon);
}

template <typename T>
struct RmspropConstants {
  T learning_rate, alpha, alpha_rest, epsilon, momentum, weight_decay;
};

// g' = g + weight_decay p;  s = alpha s + (1 - alpha) g'^2;  centered: a += (1 - alpha) (g' - a);
// d = g' / (sqrt(s - a^2) + eps);  momentum: b = momentum b + d, p -= lr b;  else p -= lr d.
// `a` is null unless centered, `b` without momentum.
// Source: Hinton, "Neural Networks for Machine Learning" (2012), lecture 6e; centered: Graves 2013.
template <typename T>
TRAINYARD_HD inline void rmsprop(const RmspropConstants<T>& c, T g, T& p, T& s, T* a, T* b) {
  g += c.weight_decay * p;
  s = c.alpha * s + c.alpha_rest * g * g;
  T variance = s;
  if (a != nullptr) {
    *a += c.alpha_rest * (g - *a);
    // Rounding can make the difference negative where s is almost equal to the squared mean.
    variance -= *a * *a;
    variance = variance < T(0) ? T(0) : variance;
  }
  T d = g / (std::sqrt(variance) + c.epsilon);
  if (b != nullptr) {
    *b = c.momentum * *b + d;
    d = *b;
  }
  p -= c.learning_rate * d;
}

template <typename T>
struct LionConstants {
  T learning_rate, beta1, beta1_rest, beta2, beta2_rest;
  T kept_share;  // 1 - lr weight_decay
};

// p *= 1 - lr weight_decay;  p -= lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g.
// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), program 2.
template <typename T>
TRAINYARD_HD inline void lion(const LionConstants<T>& c, T g, T& p, T& m) {
  const T direction = c.beta1 * m + c.beta1_rest * g;
  // sign(0) is 0; NaN is propagated, so that it is noticed.
  const T sign = direction > T(0) ? T(1) : (direction < T(0) ? T(-1) : direction);
  p = p * c.kept_share - c.learning_rate * sign;
  m = c.beta2 * m + c.beta2_rest * g;
}

// Adafactor, as in PyTorch. Source: Shazeer, Stern (2018), algorithms 4 and 5.
struct AdafactorConstants {
  double new_share;   // t^beta2_decay: weight of the new squares in the variance
  double kept_share;  // 1 - lr weight_decay
  double step;        // alpha: max(scale_min, rms(p)) min(lr, 1 / sqrt(t))
};
/// `step` counts from 0; `square_sum` is the sum of the parameter's squares before the update.
TRAINYARD_HD inline AdafactorConstants adafactor_constants(double learning_rate, double beta2_decay,
                                                           double scale_min, double weight_decay,
                                                           int64_t step, double square_sum,
                                                           int64_t count) {
  const double t = static_cast<double>(step) + 1;
  const double rate = std::fmin(learning_rate, 1 / std::sqrt(t));
  const double rms = std::sqrt(square_sum / static_cast<double>(count));
  // Written so that NaN is propagated; fmax would hide it.
  const double scale = rms < scale_min ? scale_min : rms;
  return {std::pow(t, beta2_decay), 1 - learning_rate * weight_decay, scale * rate};
}
/// Returns the factor for updates: `step`, reduced if the updates' root mean square exceeds
/// `threshold`.
TRAINYARD_HD inline double adafactor_step(double step, double update_square_sum, int64_t count,
                                          double threshold) {
  const double rms = std::sqrt(update_square_sum / static_cast<double>(count)) / threshold;
  return step / (rms < 1 ? 1 : rms);
}
/// Returns one element of the update: g divided by the square root of its estimated variance.
template <typename T>
TRAINYARD_HD inline T adafactor_update(T g, T variance, T epsilon_squared) {
  return g / std::sqrt(variance < epsilon_squared ? epsilon_squared : variance);
}

// Muon. The quintic iteration X <- a X + (b A + c A^2) X with A = X X^T drives the singular values
// of X towards 1. Source, also of the coefficients: Jordan et al., "Muon: An optimizer for hidden
// layers in neural networks" (2024).
inline constexpr double kMuonA = 3.4445, kMuonB = -4.7750, kMuonC = 2.0315;
inline constexpr double kMuonEpsilon = 1e-7;  // lower bound of a gradient's norm as divisor

/// Returns the learning rate of an orthogonal update of a matrix [rows, columns]: "original" keeps
/// the scale of the layer's output for every shape, "match_rms_adamw" gives the update the size of
/// AdamW's (Liu et al. 2025).
TRAINYARD_HD inline double muon_rate(double learning_rate, bool match_adamw, int64_t rows,
                                     int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return learning_rate *
         (match_adamw ? 0.2 * std::sqrt(std::fmax(r, c)) : std::sqrt(std::fmax(1.0, r / c)));
}

// Returns the exponential moving average of a parameter; the caller initializes it with the
// parameter.
template <typename T>
TRAINYARD_HD inline T moving_average(T average, T p, T new_share) {
  return average + new_share * (p - average);
}

/// Returns whether a step is skipped by loss scaling, which is marked by a learning rate of NaN:
/// its updates must change neither parameters nor optimizer state.
TRAINYARD_HD inline bool is_skipped(float learning_rate) { return learning_rate != learning_rate; }

/// Dynamic loss scaling. Source: Micikevicius et al. (2018), "Mixed Precision Training", section
/// 3.2; the defaults are those of torch.amp.GradScaler.
struct LossScaling {
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;  // consecutive steps that are taken before the scale grows
};

/// Returns whether a step with this gradient norm is taken, which requires a finite norm, and
/// adapts the scale for the next step. The scale does not grow beyond T's range.
template <typename T>
TRAINYARD_HD inline bool adapt_loss_scale(const LossScaling& s, T norm, T& scale,
                                          int64_t& good_steps) {
  if (!(norm - norm == 0)) {
    scale *= static_cast<T>(s.backoff);
    good_steps = 0;
    return false;
  }
  if (++good_steps < s.interval) return true;
  const T grown = scale * static_cast<T>(s.growth);
  if (grown - grown == 0) scale = grown;
  good_steps = 0;
  return true;
}

// Returns the factor for gradients when clipping their global norm, as in
// torch.nn.utils.clip_grad_norm_; the epsilon avoids a division by 0. max_norm 0 (no bound) gives
// 1; a NaN norm gives NaN.
TRAINYARD_HD inline double clip_scale(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;
}

// Multiplies a gradient by `scale` and clamps it to [-bound, bound]. An infinite bound has no
// effect; NaN is propagated.
template <typename T>
TRAINYARD_HD inline T clip_gradient(T g, T scale, T bound) {
  g *= scale;
  return g < -bound ? -bound : (g > bound ? bound : g);
}

}  // namespace trainyard::math
