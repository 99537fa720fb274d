// src/models/families/config_writer.h: the config.json by which transformers builds a model's
// network, for exports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/models/families/family.h"

namespace trainyard {

/// The settings that a config.json has in addition to those of the network.
struct ConfigSettings {
  int64_t vocabulary = 0;  // rows of the table of tokens
  int64_t positions = 0;   // the longest text that the model was trained for, in tokens
  std::optional<int64_t> begin_token = {}, end_token = {}, padding_token = {};
  std::vector<std::string> classes = {};  // of a classifier; none: the model predicts tokens
};

struct WrittenConfig {
  std::string text;    // of config.json
  std::string family;  // "llama"
};

/// Returns the config of the first family that has exactly this network, which is the preset
/// decoder or gpt2: read_model_config() of the text gives the same layers. Error:
/// FAILED_PRECONDITION/EXPORT_UNSUPPORTED for another preset, or for parameters that no family has
/// together.
Result<WrittenConfig> write_model_config(const ModelSpec& network, const ConfigSettings& settings);

}  // namespace trainyard
