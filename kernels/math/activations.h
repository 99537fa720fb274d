// kernels/math/activations.h: elementwise activations. f is the function; df takes what the op
// saves (the output y where that is enough, else x) and dy.
#pragma once

#include <cmath>

#include "kernels/math/host_device.h"
#include "kernels/math/transcendental.h"

namespace trainyard::math {

// max(x, 0). Written so that NaN goes through in both directions: a job must see its NaN.
struct Relu {  // saves y
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
struct Sigmoid {  // saves y
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

struct Tanh {  // saves y
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
struct GeluErf {  // saves x
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

// The same paper's approximation, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
struct GeluTanh {  // saves x
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

}  // namespace trainyard::math
