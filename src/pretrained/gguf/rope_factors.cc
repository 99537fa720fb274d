#include "src/pretrained/gguf/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

namespace trainyard {
namespace {

/// Frequencies with short waves stay, those with long waves are divided by the factor, and those
/// between change from one to the other.
double factor_of(const Llama3Scaling& scaling, double wave_length) {
  const auto original = static_cast<double>(scaling.original_positions);
  if (wave_length < original / scaling.high_frequency) return 1;
  if (wave_length > original / scaling.low_frequency) return scaling.factor;
  const double share = (original / wave_length - scaling.low_frequency) /
                       (scaling.high_frequency - scaling.low_frequency);
  return 1 / ((1 - share) / scaling.factor + share);
}

}  // namespace

std::optional<Llama3Scaling> find_llama3_scaling(const GgufTensor& factors, int64_t head_dim,
                                                 double theta) {
  constexpr double kRounding = 1e-3;  // of frequencies and factors in F32
  if (factors.shape != Shape{head_dim / 2} || head_dim > int64_t{1} << 16) return std::nullopt;
  std::vector<float> given(static_cast<size_t>(head_dim / 2));
  if (given.empty()) return std::nullopt;
  widen_blocks(*factors.type, factors.bytes, given);
  Llama3Scaling scaling;
  scaling.factor = static_cast<double>(std::ranges::max(given));
  if (!std::isfinite(scaling.factor) || scaling.factor < 1) return std::nullopt;
  for (size_t i = 0; i < given.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double wave_length = 2 * std::numbers::pi * std::pow(theta, exponent);
    const double expected = factor_of(scaling, wave_length);
    const double found = static_cast<double>(given[i]);
    if (!(std::abs(found - expected) <= kRounding * expected)) return std::nullopt;
  }
  return scaling;
}

nlohmann::json llama3_config(const Llama3Scaling& scaling) {
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_frequency},
          {"high_freq_factor", scaling.high_frequency},
          {"original_max_position_embeddings", scaling.original_positions}};
}

}  // namespace trainyard
