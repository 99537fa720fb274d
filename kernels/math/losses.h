// kernels/math/losses.h: losses of a single number y against a target t. f is the loss, df its
// derivative with respect to y. Members are attributes of the op of the same name.
//
// A new loss needs four additions: a struct here, an entry in the list at the end, a row in
// src/ops/pointwise_loss.cc and a row in src/models/loss.cc.
#pragma once

#include "kernels/math/elementary.h"
#include "kernels/math/host_device.h"

namespace trainyard::math {

struct MeanSquaredError {
  template <typename T>
  TRAINYARD_HD T f(T y, T t) const {
    return (y - t) * (y - t);
  }
  template <typename T>
  TRAINYARD_HD T df(T y, T t) const {
    return T(2) * (y - t);
  }
};

// The derivative is 0 where y equals t; NaN is propagated.
struct MeanAbsoluteError {
  template <typename T>
  TRAINYARD_HD T f(T y, T t) const {
    return y < t ? t - y : y - t;
  }
  template <typename T>
  TRAINYARD_HD T df(T y, T t) const {
    return y > t ? T(1) : y < t ? T(-1) : y - t;
  }
};

// Quadratic near the target and linear beyond `delta`, scaled so that value and slope are
// continuous.
// Source: Huber, "Robust Estimation of a Location Parameter" (1964).
struct HuberLoss {
  double delta = 1;
  template <typename T>
  TRAINYARD_HD T f(T y, T t) const {
    const T d = T(delta), e = y - t;
    return e > d ? d * (e - T(0.5) * d) : e < -d ? d * (-e - T(0.5) * d) : T(0.5) * e * e;
  }
  template <typename T>
  TRAINYARD_HD T df(T y, T t) const {
    const T d = T(delta), e = y - t;
    return e > d ? d : e < -d ? -d : e;
  }
};

// Binary cross-entropy of the probability sigmoid(y) against a target t in [0, 1]; the positive
// term is weighted by `pos_weight`:
//   -pos_weight t log sigmoid(y) - (1 - t) log(1 - sigmoid(y))
// Both logarithms are computed from y by log(1 + e^-|y|), so that no probability is rounded and
// nothing overflows.
struct BinaryCrossEntropyLoss {
  double pos_weight = 1;
  template <typename T>
  TRAINYARD_HD T f(T y, T t) const {
    const T tail = log1p(exp(y < T(0) ? y : -y));
    const T yes = y < T(0) ? tail - y : tail;  // -log sigmoid(y)
    const T no = y < T(0) ? tail : tail + y;
    return T(pos_weight) * t * yes + (T(1) - t) * no;
  }
  template <typename T>
  TRAINYARD_HD T df(T y, T t) const {
    const T e = exp(y < T(0) ? y : -y);  // in (0, 1]
    const T small = e / (T(1) + e), large = T(1) / (T(1) + e);
    const T yes = y < T(0) ? small : large;  // sigmoid(y)
    const T no = y < T(0) ? large : small;
    return (T(1) - t) * yes - T(pos_weight) * t * no;
  }
};

/// X(F) for every loss. Backends instantiate their loops and build their tables from this list.
#define TRAINYARD_FOR_EACH_POINTWISE_LOSS(X) \
  X(MeanSquaredError) X(MeanAbsoluteError) X(HuberLoss) X(BinaryCrossEntropyLoss)

}  // namespace trainyard::math
