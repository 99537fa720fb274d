// src/train/initial_weights.h: weights to begin with, from another job's model, by name.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/train/session.h"
#include "src/train/trainer.h"

namespace trainyard {

/// By tensor name, each in the model's order.
struct InitialWeightsReport {
  std::vector<std::string> taken;
  std::vector<std::string> left_out;    // by the patterns
  std::vector<std::string> missing;     // in the source
  std::vector<std::string> mismatched;  // "fc2.weight [10, 84] where [3, 84] is needed"
  std::vector<std::string> unused;      // of the source
  /// One line per kind that is not empty.
  std::string text(const std::string& source) const;
};

/// Writes what matches into the session. Refuses a shape that differs, unless the recipe skips
/// those, an include pattern that matches no name of the model, and a source without a match.
Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const SafetensorsFile& source, Session& session);

}  // namespace trainyard
