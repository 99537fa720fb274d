// tests/bench/schedule_sim/random.h: random numbers that are the same with every compiler and
// library, so that a seed identifies a run.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace trainyard::sim {

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Each purpose has its own generator, so that draws
/// for one do not change the others.
class Random {
 public:
  Random(uint64_t seed, uint64_t purpose) : state_(seed * 0x9e3779b97f4a7c15ull + purpose) {
    for (int i = 0; i < 4; ++i) next();
  }
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// Returns a number in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a number in [0, n), n >= 1.
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  bool chance(double probability) { return uniform() < probability; }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Returns a number whose logarithm is normal with deviation `sigma`.
  double lognormal(double median, double sigma) { return median * std::exp(sigma * normal()); }
  /// Returns an index, drawn with a probability in proportion to its weight.
  int weighted(std::span<const double> weights) {
    double sum = 0;
    for (const double w : weights) sum += w;
    double left = uniform() * sum;
    for (size_t i = 0; i + 1 < weights.size(); ++i) {
      if (left < weights[i]) return static_cast<int>(i);
      left -= weights[i];
    }
    return static_cast<int>(weights.size()) - 1;
  }

 private:
  uint64_t state_;
};

}  // namespace trainyard::sim
