// src/models/lora.h: low-rank additions to weights (Hu et al. 2021, "LoRA: Low-Rank Adaptation of
// Large Language Models"). A layer "fc1" that is a target computes
//   y = W x + b + scale * B (A dropout(x)),  scale = alpha / rank, or alpha / sqrt(rank) (rsLoRA)
// with A [rank, inputs] called "fc1.lora_A.weight" and B [outputs, rank] "fc1.lora_B.weight": the
// names of PEFT. LayerBuilder::add_product builds it.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "src/models/model_spec.h"

namespace trainyard {

inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";
/// The beginning of the names in PEFT's files.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

/// Returns whether this is the name of a LoRA parameter.
inline bool is_lora(std::string_view name) {
  return name.ends_with(kLoraA) || name.ends_with(kLoraB);
}
inline constexpr std::string_view kRankScalingSqrt = "sqrt";

/// Returns the factor of B A.
inline double lora_scale(const LoraSpec& lora) {
  const auto rank = static_cast<double>(lora.rank);
  return lora.alpha / (lora.rank_scaling == kRankScalingSqrt ? std::sqrt(rank) : rank);
}

/// Returns whether a target of recipe.lora names the layer: as a pattern of its name; as
/// "all-linear" (or "all_linear"), which is every layer but the last; or as one of PEFT's names of
/// the modules of a transformer, such as q_proj for the layers h0_q, h1_q, ...
bool is_lora_target(std::string_view target, std::string_view layer, bool is_last);

/// Returns the target that means the same as an entry of PEFT's target_modules: the name of a
/// module in each layer of a transformer ("q_proj"), "all-linear", or the name of one module,
/// "model.layers.0.self_attn.q_proj" for "h0_q". nullopt if it is none of them.
std::optional<std::string> lora_target_of(std::string_view module);

}  // namespace trainyard
