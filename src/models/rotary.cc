#include "src/models/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard {

namespace {

/// Returns theta^(2j / dim), the powers whose reciprocals are the unscaled frequencies.
std::vector<float> powers_of(int64_t dim, double theta) {
  std::vector<float> powers;
  for (int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    powers.push_back(static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))));
  }
  return powers;
}

float scale_llama3(float frequency, const RotaryScaling& s) {
  const auto positions = static_cast<double>(s.original_positions);
  const auto longest = static_cast<float>(positions / s.low_freq_factor);
  const auto shortest = static_cast<float>(positions / s.high_freq_factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  const auto factor = static_cast<float>(s.factor);
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float smooth =
      (static_cast<float>(positions) / wavelength - static_cast<float>(s.low_freq_factor)) /
      static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/// Returns the pair, as a real number, that turns `turns` times within the original positions.
double pair_of(double turns, int64_t dim, double theta, const RotaryScaling& s) {
  const auto positions = static_cast<double>(s.original_positions);
  return static_cast<double>(dim) * std::log(positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

void scale_yarn(std::vector<float>& frequencies, const std::vector<float>& powers, int64_t dim,
                double theta, const RotaryScaling& s) {
  double low = pair_of(s.beta_fast, dim, theta, s), high = pair_of(s.beta_slow, dim, theta, s);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;  // no division by 0
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const float ramp =
        (static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float scaled = 1.0f / (static_cast<float>(s.factor) * powers[j]);
    frequencies[j] = scaled * (1.0f - kept) + frequencies[j] * kept;
  }
}

/// The settings that each scaling reads, besides theta.
struct ScalingSettings {
  std::string_view kind;
  std::vector<std::string_view> required, optional;
};
const std::vector<ScalingSettings>& scaling_settings() {
  static const std::vector<ScalingSettings> settings = {
      {"none", {}, {}},
      {"linear", {"factor"}, {}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_positions"}, {}},
      {"yarn",
       {"factor", "original_positions"},
       {"attention_factor", "beta_fast", "beta_slow", "truncate"}}};
  return settings;
}

}  // namespace

RotaryScaling rotary_scaling(const Attributes& a) {
  RotaryScaling s;
  s.kind = a.get_string("scaling", s.kind);
  s.factor = a.get_float("factor", s.factor);
  s.low_freq_factor = a.get_float("low_freq_factor", s.low_freq_factor);
  s.high_freq_factor = a.get_float("high_freq_factor", s.high_freq_factor);
  s.beta_fast = a.get_float("beta_fast", s.beta_fast);
  s.beta_slow = a.get_float("beta_slow", s.beta_slow);
  s.truncate = a.get_int("truncate", 1) != 0;
  if (a.find("attention_factor") != nullptr)
    s.attention_factor = a.get_float("attention_factor", 1);
  s.original_positions = a.get_int("original_positions", 0);
  return s;
}

std::optional<RotaryProblem> find_scaling_problem(const Attributes& attributes,
                                                  const std::string& prefix) {
  const std::string setting = prefix + "scaling";
  const std::string kind = attributes.get_string(setting, "none");
  const ScalingSettings& use = *std::ranges::find(scaling_settings(), kind, &ScalingSettings::kind);
  for (const std::string name :
       {"factor", "low_freq_factor", "high_freq_factor", "original_positions", "attention_factor",
        "beta_fast", "beta_slow", "truncate"}) {
    const bool given = attributes.find(prefix + name) != nullptr;
    const bool required = std::ranges::find(use.required, name) != use.required.end();
    if (required && !given) {
      return RotaryProblem{"FIELD_REQUIRED", prefix + name,
                           "is required with " + setting + ": " + kind};
    }
    if (given && !required && std::ranges::find(use.optional, name) == use.optional.end()) {
      return RotaryProblem{"FIELD_UNUSED", prefix + name,
                           "has no effect with " + setting + ": " + kind + "; remove it"};
    }
  }
  const std::string low = prefix + "low_freq_factor";
  if (kind == "llama3" &&
      attributes.get_float(low, 0) >= attributes.get_float(prefix + "high_freq_factor", 0)) {
    return RotaryProblem{"FIELD_OUT_OF_RANGE", low,
                         "is not below " + prefix + "high_freq_factor, expected less"};
  }
  return std::nullopt;
}

RotaryFrequencies rotary_frequencies(int64_t dim, double theta, const RotaryScaling& scaling) {
  const std::vector<float> powers = powers_of(dim, theta);
  std::vector<float> frequencies;
  for (const float power : powers) frequencies.push_back(1.0f / power);
  RotaryFrequencies result;
  if (scaling.kind == "linear") {
    for (float& f : frequencies) f /= static_cast<float>(scaling.factor);
  } else if (scaling.kind == "llama3") {
    for (float& f : frequencies) f = scale_llama3(f, scaling);
  } else if (scaling.kind == "yarn") {
    scale_yarn(frequencies, powers, dim, theta, scaling);
    const double longer = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
    result.factor = scaling.attention_factor.value_or(longer);
  }
  result.values.assign(frequencies.begin(), frequencies.end());
  return result;
}

}  // namespace trainyard
