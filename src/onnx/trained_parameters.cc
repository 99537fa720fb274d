#include "src/onnx/trained_parameters.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/onnx/importer_axes.h"
#include "src/onnx/onnx_file.h"

namespace trainyard::onnx {

Result<std::optional<TrainedParameters>> TrainedParameters::read(
    const std::map<std::string, std::string>& metadata) {
  const auto text = metadata.find(kTrainedParametersKey);
  if (text == metadata.end()) return std::optional<TrainedParameters>();
  const auto list = nlohmann::json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  const bool is_list = list.is_array() &&
                       std::ranges::all_of(list, [](const auto& name) { return name.is_string(); });
  if (!is_list) {
    return invalid_file(std::string("metadata ") + kTrainedParametersKey +
                        " is not a JSON list of names of initializers");
  }
  TrainedParameters parameters;
  for (const auto& name : list) parameters.names_.insert(name.get<std::string>());
  return std::optional(std::move(parameters));
}

Result<std::vector<Origin>> TrainedParameters::count(const std::string& initializer,
                                                     int64_t numbers) {
  const size_t begin = taken_.size();
  if (static_cast<uint64_t>(numbers) >= kFixed - begin) {
    return misfit("the parameters have more than " + std::to_string(kFixed) + " numbers");
  }
  if (numbers > 0) begins_[static_cast<Origin>(begin)] = initializer;
  taken_.resize(begin + static_cast<size_t>(numbers));
  std::vector<Origin> origins(static_cast<size_t>(numbers));
  for (size_t i = 0; i < origins.size(); ++i) origins[i] = static_cast<Origin>(begin + i);
  return origins;
}

const std::string& TrainedParameters::name_of(Origin origin) const {
  const auto behind = begins_.upper_bound(origin);
  TRAINYARD_CHECK(behind != begins_.begin() && origin < taken_.size(), "a number of no parameter");
  return std::prev(behind)->second;
}

Result<bool> TrainedParameters::take(const std::string& weight,
                                     const std::vector<Origin>& origins) {
  const auto trained = std::ranges::find_if(origins, [](Origin o) { return o != kFixed; });
  if (trained == origins.end()) return false;
  const auto refuse = [&](Origin of, const std::string& what) {
    return misfit("parameter " + quoted_value(name_of(of)) + " would be " + quoted_value(weight) +
                  ", " + what);
  };
  for (const Origin o : origins) {
    if (o == kFixed) return refuse(*trained, "which also has numbers that are fixed");
    if (taken_[o]) {
      return refuse(o,
                    "but is used elsewhere too, and layers share the weights of linear layers and "
                    "embeddings alone");
    }
    taken_[o] = true;
  }
  return true;
}

namespace {

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

/// Patterns for `names` that match none of `others`: a whole layer's where it can be.
std::vector<std::string> patterns_of(const std::vector<std::string>& names,
                                     const std::vector<std::string>& others) {
  std::set<std::string> mixed;
  for (const std::string& other : others) mixed.insert(layer_of(other));
  std::vector<std::string> patterns;
  for (const std::string& name : names) {
    const std::string layer = layer_of(name);
    const std::string pattern = mixed.contains(layer) ? name : layer + ".*";
    if (patterns.empty() || patterns.back() != pattern) patterns.push_back(pattern);
  }
  return patterns;
}

}  // namespace

std::vector<FreezeRule> freeze_rules(const std::vector<std::string>& trained,
                                     const std::vector<std::string>& frozen) {
  const std::vector<std::string> freeze = patterns_of(frozen, trained);
  const std::vector<std::string> train = patterns_of(trained, frozen);
  std::vector<FreezeRule> rules;
  if (freeze.size() <= train.size() + 1) {
    for (const std::string& match : freeze) rules.push_back({match, true});
  } else {
    rules.push_back({"*", true});
    for (const std::string& match : train) rules.push_back({match, false});
  }
  return rules;
}

}  // namespace trainyard::onnx
