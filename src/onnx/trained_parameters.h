// src/onnx/trained_parameters.h: which initializers of a file are trained, if the file says so.
//
// An ONNX file does not distinguish parameters from other constants, unless its metadata has
// kTrainedParametersKey, a JSON list of initializers. Then these are trained, and no others. Each
// of their numbers gets an Origin, which is used to check that the layers train exactly these:
// every number must be in one weight, once, and no weight may be partly fixed.
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
  /// Returns nothing if the metadata does not have the key. ONNX_INVALID if the value is not a list
  /// of names.
  static Result<std::optional<TrainedParameters>> read(
      const std::map<std::string, std::string>& metadata);

  bool contains(const std::string& initializer) const { return names_.contains(initializer); }
  /// Assigns origins to the numbers of a trained initializer. ONNX_UNSUPPORTED if there are more
  /// than an Origin can represent.
  Result<std::vector<Origin>> count(const std::string& initializer, int64_t numbers);
  /// Returns the initializer to which a number belongs.
  const std::string& name_of(Origin origin) const;

  /// Registers the numbers of a layer's weight. Returns true if the weight is trained, false if it
  /// is fixed. ONNX_UNSUPPORTED, naming the parameter, if the weight is partly fixed, or has a
  /// number that is already in a weight, including this one.
  Result<bool> take(const std::string& weight, const std::vector<Origin>& origins);

 private:
  std::set<std::string> names_;
  std::map<Origin, std::string> begins_;  // initializers, by the origin of their first number
  std::vector<bool> taken_;               // by origin: whether the number is in a weight
};

/// Returns a short list of rules that freezes the parameters in `frozen` and trains those in
/// `trained`. Each rule has a name, or a pattern for the beginning or the end of names; later rules
/// override earlier ones. Empty if `frozen` is empty.
std::vector<FreezeRule> freeze_rules(const std::vector<std::string>& trained,
                                     const std::vector<std::string>& frozen);

}  // namespace trainyard::onnx
