// kernels/math/candidates.h: random sampling of classes as candidates of a sampled softmax.
//
//   log-uniform   P(k) = log((k + 2) / (k + 1)) / log(K + 1): Zipf's law for classes numbered in
//                 order of falling frequency. k = floor(exp(u log(K + 1))) - 1, u uniform in [0, 1)
//   uniform       P(k) = 1 / K, k = floor(u K)
//
// Source: Jean, Cho, Memisevic, Bengio, "On Using Very Large Target Vocabulary for Neural Machine
// Translation" (2015). The conventions are those of TensorFlow's candidate samplers.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/math/philox.h"

namespace trainyard::math {

/// Returns e^y for y in [0, 40], within 2 ulp and with the same bits on every host and device:
/// every step is correctly rounded, and no step can be contracted by a compiler. A library's exp
/// differs in its last bit between platforms, which could change the sampled class.
TRAINYARD_HD inline double portable_exp(double y) {
  const double n = std::floor(std::fma(y, 1.4426950408889634074, 0.5));
  // ln 2 is split in two parts; the first has so few bits that its product with n is exact.
  const double r =
      std::fma(-n, 1.90821492927058770002e-10, std::fma(-n, 0.693147180369123816490, y));
  double q = 1.6059043836821613e-10;  // 1 / 13!
  q = std::fma(q, r, 2.0876756987868099e-09);
  q = std::fma(q, r, 2.5052108385441719e-08);
  q = std::fma(q, r, 2.7557319223985893e-07);
  q = std::fma(q, r, 2.7557319223985888e-06);
  q = std::fma(q, r, 2.4801587301587302e-05);
  q = std::fma(q, r, 1.9841269841269841e-04);
  q = std::fma(q, r, 1.3888888888888889e-03);
  q = std::fma(q, r, 8.3333333333333332e-03);
  q = std::fma(q, r, 4.1666666666666664e-02);
  q = std::fma(q, r, 1.6666666666666666e-01);
  q = std::fma(q, r, 0.5);
  q = std::fma(q, r, 1.0);
  q = std::fma(q, r, 1.0);
  return std::ldexp(q, static_cast<int>(n));
}

/// The distribution by which candidates are drawn from K classes.
struct Candidates {
  int64_t classes = 2;
  bool log_uniform = true;
  double log_range = 0;  // log(K + 1), computed once so that all users have the same bits

  /// Returns the class of draw number t in the given stream and step.
  TRAINYARD_HD int64_t draw(uint64_t seed, uint32_t stream, uint64_t step, int64_t t) const {
    const Philox4 block = philox_block(seed, stream, step, static_cast<uint64_t>(t) / 2);
    const int at = t % 2 == 0 ? 0 : 2;
    const uint64_t bits = (static_cast<uint64_t>(block.v[at]) << 32 | block.v[at + 1]) >> 11;
    const double u = static_cast<double>(bits) * 1.1102230246251565e-16;  // 2^-53
    const double x = log_uniform ? portable_exp(u * log_range) : u * static_cast<double>(classes);
    const int64_t k = static_cast<int64_t>(x) - (log_uniform ? 1 : 0);
    return k < classes ? k : classes - 1;
  }
  TRAINYARD_HD double probability(int64_t k) const {
    return log_uniform ? std::log1p(1.0 / (static_cast<double>(k) + 1.0)) / log_range
                       : 1.0 / static_cast<double>(classes);
  }
  /// Returns the logarithm of the probability that class k is among the results of `tries` draws:
  /// log(1 - (1 - P(k))^tries).
  TRAINYARD_HD double log_expected(int64_t k, int64_t tries) const {
    return std::log(-std::expm1(static_cast<double>(tries) * std::log1p(-probability(k))));
  }
};

inline Candidates candidates_of(int64_t classes, bool log_uniform) {
  return {classes, log_uniform, std::log(static_cast<double>(classes) + 1.0)};
}

}  // namespace trainyard::math
