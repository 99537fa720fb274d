// src/models/rotary.h: the frequencies of rotary position embeddings, with the scalings by which
// models read longer texts than those that they first learned from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/graph/attributes.h"

namespace trainyard {

struct RotaryScaling {
  std::string kind = "none";  // "none", "linear", "llama3" or "yarn"
  double factor = 1;          // how many times longer the texts are
  // llama3: wavelengths above original_positions / low_freq_factor are scaled by `factor`, those
  // below original_positions / high_freq_factor are kept, and those between are interpolated.
  double low_freq_factor = 1, high_freq_factor = 4;
  // yarn: pairs that turn more often than beta_fast within original_positions are kept, those that
  // turn less often than beta_slow are scaled. With `truncate` the limits between are whole pairs.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor = {};  // yarn: default 0.1 log(factor) + 1
  int64_t original_positions = 0;               // llama3, yarn
};

struct RotaryFrequencies {
  std::vector<double> values;  // for each pair, the angle from one position to the next
  double factor = 1;           // of all cosines and sines
};

/// Reads the attributes `scaling`, `factor`, `low_freq_factor` and so on.
RotaryScaling rotary_scaling(const Attributes& attributes);

struct RotaryProblem {
  std::string reason, attribute, description;
};
/// Finds a setting that the scaling needs but that is not given, or that it does not read.
/// `prefix` precedes the names of all attributes: "rope_".
std::optional<RotaryProblem> find_scaling_problem(const Attributes& attributes,
                                                  const std::string& prefix);

/// Returns the frequencies of `dim` numbers of a head (an even number): theta^(-2j / dim), scaled.
/// Computed in F32, as transformers does, because at a position of 100,000 an angle is 100,000
/// times as wrong as its frequency.
RotaryFrequencies rotary_frequencies(int64_t dim, double theta, const RotaryScaling& scaling);

}  // namespace trainyard
