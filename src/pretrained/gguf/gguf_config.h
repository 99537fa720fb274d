// src/pretrained/gguf/gguf_config.h: what the settings of a GGUF file say about the network, as the
// config.json that transformers would have written for it.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard {

/// A network that GGUF files can have, as a family of src/models/families.
struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view family;  // model_type of config.json
  /// The rows of queries and keys are in the order of llama.cpp's rotary positions, which turn
  /// neighbors; transformers turns numbers that are half a head apart.
  bool pairs_rotary = false;
  bool has_bias_setting = true;  // attention_bias of config.json
  bool has_mlp_bias_setting = false;
  bool has_multipliers = false;  // Granite's
};

/// Refuses a file that is no whole language model of a known architecture: MODEL_UNSUPPORTED.
Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file);

/// Returns the text of config.json. Every setting of the architecture is expressed by it, changes
/// nothing, or is refused by name: MODEL_UNSUPPORTED, MODEL_FILE_INVALID.
Result<std::string> gguf_config(const GgufFile& file, const GgufArchitecture& architecture);

}  // namespace trainyard
