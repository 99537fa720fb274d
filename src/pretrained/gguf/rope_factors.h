// src/pretrained/gguf/rope_factors.h: the scaling of rotary positions of Llama 3.1 to 3.3. GGUF
// files have no settings of it, but a tensor with the factor by which each frequency is divided.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard {

inline constexpr std::string_view kRopeFactorsTensor = "rope_freqs.weight";

struct Llama3Scaling {
  double factor = 1;  // 1: none
  double low_frequency = 1, high_frequency = 4;
  int64_t original_positions = 8192;
};

/// Returns the scaling that has these factors for heads of `head_dim` numbers; nothing if they are
/// others.
std::optional<Llama3Scaling> find_llama3_scaling(const GgufTensor& factors, int64_t head_dim,
                                                 double theta);

/// Returns the scaling as rope_scaling of config.json.
nlohmann::json llama3_config(const Llama3Scaling& scaling);

}  // namespace trainyard
