// kernels/math/recurrent.h: the computation of one unit of a recurrent cell at one step.
#pragma once

#include "kernels/math/transcendental.h"

namespace trainyard::math {

/// Returns 1 / (1 + e^-x), without a branch. e^-x may overflow to infinity: the result is then 0.
template <typename T>
TRAINYARD_HD TRAINYARD_INLINE T logistic(T x) {
  return T(1) / (T(1) + exp(-x));
}

// Long short-term memory (Hochreiter, Schmidhuber 1997) with a forget gate (Gers et al. 2000):
//   c = f c' + i g,  h = o tanh(c),  i, f, o logistic, g tanh
struct Lstm {
  template <typename T>
  struct Gates {
    T i, f, g, o;
  };
  template <typename T>
  TRAINYARD_HD TRAINYARD_INLINE static Gates<T> activate(T i, T f, T g, T o) {
    return {logistic(i), logistic(f), tanh(g), logistic(o)};
  }
  /// Returns the gradients with respect to the gates before activation, from those of h and c. `dc`
  /// is replaced by the gradient of c'.
  template <typename T>
  TRAINYARD_HD TRAINYARD_INLINE static Gates<T> backward(const Gates<T>& a, T c, T c_before, T dh,
                                                         T& dc) {
    const T t = tanh(c);
    const T d = dc + dh * a.o * (T(1) - t * t);
    dc = d * a.f;
    return {d * a.g * a.i * (T(1) - a.i), d * c_before * a.f * (T(1) - a.f),
            d * a.i * (T(1) - a.g * a.g), dh * t * a.o * (T(1) - a.o)};
  }
};

// Gated recurrent unit (Cho et al. 2014), with the reset gate applied after the recurrent product:
//   h = (1 - z) n + z h',  n = tanh(xn + r hn),  r, z logistic
struct Gru {
  template <typename T>
  struct Gates {
    T r, z, n;
  };
  /// `hn` is the recurrent part of the candidate, w_hn h' + b_hn.
  template <typename T>
  TRAINYARD_HD TRAINYARD_INLINE static Gates<T> activate(T r, T z, T xn, T hn) {
    r = logistic(r);
    return {r, logistic(z), tanh(xn + r * hn)};
  }
  /// Returns the gradients with respect to the gates before activation; the gradient of hn is that
  /// of n times r. `dh` is replaced by the direct part of the gradient of h'.
  template <typename T>
  TRAINYARD_HD TRAINYARD_INLINE static Gates<T> backward(const Gates<T>& a, T hn, T h_before,
                                                         T& dh) {
    const T dn = dh * (T(1) - a.z) * (T(1) - a.n * a.n);
    const T dz = dh * (h_before - a.n) * a.z * (T(1) - a.z);
    dh = dh * a.z;
    return {dn * hn * a.r * (T(1) - a.r), dz, dn};
  }
};

}  // namespace trainyard::math
