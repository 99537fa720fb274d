// kernels/math/arithmetic.h: functions of two numbers. f is the function; da and db compute the
// gradients of a and b from dy.
#pragma once

#include <cmath>

#include "kernels/math/host_device.h"

namespace trainyard::math {

struct Add {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a + b;
  }
};

struct Sub {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a - b;
  }
};

struct Mul {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a * b;
  }
  template <typename T>
  TRAINYARD_HD static T da(T, T b, T dy) {
    return dy * b;
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T, T dy) {
    return dy * a;
  }
};

struct Div {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a / b;
  }
  template <typename T>
  TRAINYARD_HD static T da(T, T b, T dy) {
    return dy / b;
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T b, T dy) {
    return -dy * (a / b) / b;
  }
};

// a^b. The gradient of b is 0 where a is 0, because a^b is 0 there for every positive b.
struct Pow {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return b == T(2) ? a * a : std::pow(a, b);
  }
  template <typename T>
  TRAINYARD_HD static T da(T a, T b, T dy) {
    if (b == T(2)) return dy * (T(2) * a);
    return b == T(0) ? T(0) : dy * b * std::pow(a, b - T(1));
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T b, T dy) {
    return a == T(0) ? T(0) : dy * std::pow(a, b) * std::log(a);
  }
};

// The smaller and the larger of two numbers; NaN beats every number. Equal operands share the
// gradient.
struct Min {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a < b || a != a ? a : b;
  }
  template <typename T>
  TRAINYARD_HD static T da(T a, T b, T dy) {
    return a < b ? dy : (a == b ? T(0.5) * dy : T(0));
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T b, T dy) {
    return b < a ? dy : (a == b ? T(0.5) * dy : T(0));
  }
};

struct Max {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a > b || a != a ? a : b;
  }
  template <typename T>
  TRAINYARD_HD static T da(T a, T b, T dy) {
    return a > b ? dy : (a == b ? T(0.5) * dy : T(0));
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T b, T dy) {
    return b > a ? dy : (a == b ? T(0.5) * dy : T(0));
  }
};

// Relu with a trained slope b for negative a (He et al., "Delving Deep into Rectifiers", 2015).
struct PRelu {
  template <typename T>
  TRAINYARD_HD static T f(T a, T b) {
    return a < T(0) ? b * a : a;
  }
  template <typename T>
  TRAINYARD_HD static T da(T a, T b, T dy) {
    return a > T(0) ? dy : b * dy;
  }
  template <typename T>
  TRAINYARD_HD static T db(T a, T, T dy) {
    return a > T(0) ? T(0) : a * dy;
  }
};

}  // namespace trainyard::math

/// TRAINYARD_FOR_EACH_ARITHMETIC expands X(F) for every function F, and
/// TRAINYARD_FOR_EACH_ARITHMETIC_GRAD for every function that has a gradient kernel. Backends
/// instantiate their loops from these lists.
#define TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(X) X(Mul) X(Div) X(Pow) X(Min) X(Max) X(PRelu)
#define TRAINYARD_FOR_EACH_ARITHMETIC(X) X(Add) X(Sub) TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(X)
