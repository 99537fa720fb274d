// kernels/math/activations.h: functions of one number. f is the function. df is its gradient,
// computed from dy and from the value that the op saves: the output y where that is sufficient,
// else x. Members are ONNX's attributes with its defaults; a function with members is called
// through an object.
//
// A new function needs four additions: a struct here, an entry in the list at the end, a row in
// src/ops/activation.cc and a row in src/models/layers/elementwise.cc.
#pragma once

#include <cmath>

#include "kernels/math/elementary.h"
#include "kernels/math/host_device.h"
#include "kernels/math/transcendental.h"

namespace trainyard::math {

// max(x, 0). The comparison propagates NaN in both directions, so that a job notices its NaNs.
struct Relu {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x < T(0) ? T(0) : x;
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return y <= T(0) ? T(0) : dy;
  }
};

// Logistic sigmoid 1 / (1 + e^-x). exp() only ever sees -|x|, so it cannot overflow.
struct Sigmoid {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    const T e = exp(x < T(0) ? x : -x);  // in (0, 1]
    return x < T(0) ? e / (T(1) + e) : T(1) / (T(1) + e);
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return dy * y * (T(1) - y);
  }
};

struct Tanh {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return tanh(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return dy * (T(1) - y * y);
  }
};

// x * Phi(x), Phi the normal distribution function. Source: Hendrycks, Gimpel, "Gaussian Error
// Linear Units" (2016).
struct GeluErf {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T cdf(T x) {
    return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));  // 1 / sqrt(2)
  }
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x * cdf(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    const T pdf = T(0.39894228040143267794) * exp(T(-0.5) * x * x);  // 1 / sqrt(2 pi)
    return dy * (cdf(x) + x * pdf);
  }
};

// The approximation from the same paper as GeluErf: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715
// x^3))).
struct GeluTanh {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T inner(T x) {
    return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);  // sqrt(2 / pi)
  }
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return T(0.5) * x * (T(1) + tanh(inner(x)));
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    const T t = tanh(inner(x));
    const T d_inner = T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * d_inner);
  }
};

// x if x > 0, else alpha x.
struct LeakyRelu {  // backward reads x
  double alpha = 0.01;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x < T(0) ? T(alpha) * x : x;
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return x > T(0) ? dy : T(alpha) * dy;
  }
};

// x if x > alpha, else 0.
struct ThresholdedRelu {  // backward reads x
  double alpha = 1;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x <= T(alpha) ? T(0) : x;
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return x <= T(alpha) ? T(0) : dy;
  }
};

// x if x > 0, else alpha (e^x - 1). Source: Clevert et al., "Fast and Accurate Deep Network
// Learning by Exponential Linear Units" (2015).
struct Elu {  // backward reads x
  double alpha = 1;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x > T(0) ? x : T(alpha) * expm1(x > T(0) ? T(0) : x);
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return x > T(0) ? dy : dy * (T(alpha) * exp(x > T(0) ? T(0) : x));
  }
};

// gamma Elu(x). Constants: Klambauer et al., "Self-Normalizing Neural Networks" (2017), rounded as
// in ONNX.
struct Selu {  // backward reads x
  double alpha = 1.67326319217681884765625;
  double gamma = 1.05070102214813232421875;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return T(gamma) * Elu{alpha}.f(x);
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return T(gamma) * Elu{alpha}.df(x, dy);
  }
};

// An Elu whose slope is continuous at 0: x if x > 0, else alpha (e^(x / alpha) - 1).
struct Celu {  // backward reads x
  double alpha = 1;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x > T(0) ? x : T(alpha) * expm1((x > T(0) ? T(0) : x) / T(alpha));
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return x > T(0) ? dy : dy * exp((x > T(0) ? T(0) : x) / T(alpha));
  }
};

// log(1 + e^x), as max(x, 0) + log(1 + e^-|x|).
struct Softplus {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return (x < T(0) ? T(0) : x) + log1p(exp(x < T(0) ? x : -x));
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    return dy * Sigmoid::f(x);
  }
};

// x / (1 + |x|).
struct Softsign {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x / (T(1) + (x < T(0) ? -x : x));
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    const T d = T(1) + (x < T(0) ? -x : x);
    return dy / (d * d);
  }
};

// max(0, min(1, alpha x + beta)).
struct HardSigmoid {  // backward reads x
  double alpha = 0.2;
  double beta = 0.5;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    const T y = T(alpha) * x + T(beta);
    return y < T(0) ? T(0) : (y > T(1) ? T(1) : y);
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    const T y = T(alpha) * x + T(beta);
    return y > T(0) && y < T(1) ? T(alpha) * dy : T(0);
  }
};

// x HardSigmoid(x) with alpha 1/6 and beta 1/2. Source: Howard et al., "Searching for MobileNetV3"
// (2019).
struct HardSwish {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x * HardSigmoid{1.0 / 6, 0.5}.f(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    const T inside = dy * (x * T(1.0 / 3) + T(0.5));
    return x <= T(-3) ? T(0) : (x >= T(3) ? dy : inside);
  }
};

// x Sigmoid(alpha x); with alpha 1 it is SiLU. Source: Ramachandran et al., "Searching for
// Activation Functions" (2017).
struct Swish {  // backward reads x
  double alpha = 1;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x * Sigmoid::f(T(alpha) * x);
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    const T s = Sigmoid::f(T(alpha) * x);
    return dy * (s + T(alpha) * x * (s * (T(1) - s)));
  }
};

// x tanh(Softplus(x)). With e = e^-|x|, tanh(log(1 + e^x)) is a quotient of polynomials in e that
// neither overflows nor cancels. Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation
// Function" (2019).
struct Mish {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T gate(T x) {
    const T e = exp(x < T(0) ? x : -x);
    const T n = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
    return n / (n + (x < T(0) ? T(2) : T(2) * e * e));
  }
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x * gate(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    const T t = gate(x);
    return dy * (t + x * (T(1) - t * t) * Sigmoid::f(x));
  }
};

struct Neg {  // backward reads neither x nor y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return -x;
  }
  template <typename T>
  TRAINYARD_HD static T df(T, T dy) {
    return -dy;
  }
};

struct Abs {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return x < T(0) ? -x : x;
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    return x < T(0) ? -dy : (x == T(0) ? T(0) : dy);
  }
};

struct Exp {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return exp(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return dy * y;
  }
};

struct Log {  // backward reads x
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return log(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T x, T dy) {
    return dy / x;
  }
};

struct Sqrt {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return std::sqrt(x);
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return dy * (T(0.5) / y);
  }
};

struct Reciprocal {  // backward reads y
  template <typename T>
  TRAINYARD_HD static T f(T x) {
    return T(1) / x;
  }
  template <typename T>
  TRAINYARD_HD static T df(T y, T dy) {
    return -dy * y * y;
  }
};

// max(min, min(max, x)). At the bounds the gradient is passed through, as in torch.clamp.
struct Clip {  // backward reads x
  double min = -3.4028234663852886e38;
  double max = 3.4028234663852886e38;
  template <typename T>
  TRAINYARD_HD T f(T x) const {
    return x < T(min) ? T(min) : (x > T(max) ? T(max) : x);
  }
  template <typename T>
  TRAINYARD_HD T df(T x, T dy) const {
    return x < T(min) || x > T(max) ? T(0) : dy;
  }
};

}  // namespace trainyard::math

/// TRAINYARD_FOR_EACH_UNARY_OP(X) expands X(F) for each function that is an op of the same name,
/// TRAINYARD_FOR_EACH_ACTIVATION(X) for all functions: the op Gelu has two forms. Backends
/// instantiate their loops from these lists.
// clang-format would reformat this list differently at each run.
// clang-format off
#define TRAINYARD_FOR_EACH_UNARY_OP(X) \
  X(Relu) X(Sigmoid) X(Tanh) X(LeakyRelu) X(ThresholdedRelu) X(Elu) X(Selu) X(Celu) \
  X(Softplus) X(Softsign) X(HardSigmoid) X(HardSwish) X(Swish) X(Mish) X(Neg) X(Abs) \
  X(Exp) X(Log) X(Sqrt) X(Reciprocal) X(Clip)
// clang-format on
#define TRAINYARD_FOR_EACH_ACTIVATION(X) TRAINYARD_FOR_EACH_UNARY_OP(X) X(GeluErf) X(GeluTanh)
