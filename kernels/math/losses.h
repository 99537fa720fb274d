// kernels/math/losses.h: losses of one number y against a target t. f is the loss, df its
// derivative by y. Members are attributes of the op of the same name.
//
// A new one is a struct here with a line in the list at the end, a row in src/ops/pointwise_loss.cc
// and one in src/models/loss.cc.
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

// The derivative is 0 where the two are equal, and NaN goes through.
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

// Square near the target and straight beyond `delta`, scaled so that both meet with one slope.
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

// Cross-entropy of a yes with the probability sigmoid(y) against a target share t in [0, 1]; what
// there is of yes counts `pos_weight` times:
//   -pos_weight t log sigmoid(y) - (1 - t) log(1 - sigmoid(y))
// Both logarithms are taken from y by log(1 + e^-|y|): no probability is rounded, nothing
// overflows.
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

/// X(F) for every one. Backends instantiate their loops over it, and make their table from it.
#define TRAINYARD_FOR_EACH_POINTWISE_LOSS(X) \
  X(MeanSquaredError) X(MeanAbsoluteError) X(HuberLoss) X(BinaryCrossEntropyLoss)

}  // namespace trainyard::math
