// src/models/lora.h: low-rank additions to weights (Hu et al. 2021, "LoRA: Low-Rank Adaptation of
// Large Language Models"). A layer "fc1" that is a target computes
//   y = W x + b + alpha / rank * B (A dropout(x))
// with A [rank, inputs] called "fc1.lora_A.weight" and B [outputs, rank] "fc1.lora_B.weight": the
// names of PEFT. LayerBuilder::add_product builds it.
#pragma once

#include <string_view>

#include "src/models/model_spec.h"

namespace trainyard {

inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

/// Returns whether this is the name of a LoRA parameter.
inline bool is_lora(std::string_view name) {
  return name.ends_with(kLoraA) || name.ends_with(kLoraB);
}
/// Returns the factor of B A.
inline double lora_scale(const LoraSpec& lora) {
  return lora.alpha / static_cast<double>(lora.rank);
}

}  // namespace trainyard
