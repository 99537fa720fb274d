// src/train/lora.h: what low-rank additions (src/models/lora.h) mean for a recipe, and how they
// leave with the model: added to the weights, and by themselves.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/models/lora.h"
#include "src/train/trainer.h"

namespace trainyard {

/// Ranges of recipe.lora, by the name that users write.
Status check_lora(const LoraSpec& lora);

/// The groups that stand before the recipe's own: everything is frozen but A and B.
std::vector<ParameterGroup> lora_groups(const LoraSpec& lora);

/// Against the built model: a target pattern that matches no layer, and groups of the recipe that
/// freeze what is frozen or train a target's own weight.
Status check_lora_model(const Recipe& recipe, const Model& model, const std::stop_token& stop = {});

struct LoraModel {
  std::vector<std::vector<std::byte>> storage;  // what `weights` and `adapter` point into
  std::vector<TensorView> weights;              // of the model only, with scale * B A added to W
  std::vector<TensorView> adapter;              // A and B under PEFT's names
  std::string adapter_config;                   // PEFT's adapter_config.json
};
/// `weights` are a job's, with A and B among them; they must outlive the result.
LoraModel split_lora(const Recipe& recipe, std::span<const TensorView> weights);

}  // namespace trainyard
