// src/onnx/trained_parameters.h: which initializers of a file a model learns, where the file says
// so.
//
// An ONNX file does not tell a parameter from any other constant. One whose metadata has
// kTrainedParametersKey, a JSON list of initializers, does: these are trained and nothing else is.
// Each of their numbers is counted, so that the layers can be held to it: every number is in one
// weight, once, and no weight is partly fixed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/onnx/import_model.h"
#include "src/onnx/import_value.h"

namespace trainyard::onnx {

inline constexpr const char* kTrainedParametersKey = "trainyard.trained_parameters";

class TrainedParameters {
 public:
  /// Nothing if the metadata lacks the key. ONNX_INVALID if it is not a list of names.
  static Result<std::optional<TrainedParameters>> read(
      const std::map<std::string, std::string>& metadata);

  bool contains(const std::string& initializer) const { return names_.contains(initializer); }
  /// Counts the numbers of one of them. ONNX_UNSUPPORTED if there are more than an Origin can tell.
  Result<std::vector<Origin>> count(const std::string& initializer, int64_t numbers);
  /// The initializer that a number is part of.
  const std::string& name_of(Origin origin) const;

  /// Takes the numbers of a layer's weight. True if it is trained, false if it is fixed;
  /// ONNX_UNSUPPORTED, naming the parameter, if it is partly fixed, or has a number that a weight
  /// before it, or itself, also has.
  Result<bool> take(const std::string& weight, const std::vector<Origin>& origins);

 private:
  std::set<std::string> names_;
  std::map<Origin, std::string> begins_;  // the first number of each
  std::vector<bool> taken_;               // of each number
};

/// A short list that freezes some parameters of layers and trains the others, by names and patterns
/// of which the later counts: of what names begin with, or of what they end with. Empty if there
/// are none to freeze.
std::vector<FreezeRule> freeze_rules(const std::vector<std::string>& trained,
                                     const std::vector<std::string>& frozen);

}  // namespace trainyard::onnx
