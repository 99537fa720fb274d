// src/artifact/lora_model.h: how low-rank additions leave with the model: added to the weights, and
// by themselves, as PEFT reads them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/job/recipe.h"

namespace trainyard {

struct LoraModel {
  std::vector<std::vector<std::byte>> storage;  // what `weights` and `adapter` point into
  std::vector<TensorView> weights;              // of the model only, with scale * B A added to W
  std::vector<TensorView> adapter;              // A and B under PEFT's names
  std::string adapter_config;                   // PEFT's adapter_config.json
};
/// `weights` are a job's, with A and B among them; they must outlive the result.
LoraModel split_lora(const Recipe& recipe, std::span<const TensorView> weights);

}  // namespace trainyard
