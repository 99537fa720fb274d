// src/artifact/lora_model.h: exports a model with LoRA adapters in two forms: weights with the
// adapters merged in, and the adapters alone in PEFT's format.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/job/recipe.h"

namespace trainyard {

struct LoraModel {
  std::vector<std::vector<std::byte>> storage;  // owns the bytes of the merged tensors in `weights`
  std::vector<TensorView>
      weights;  // the base model's tensors, with scale * B A added to each adapted W
  std::vector<TensorView> adapter;  // A and B under PEFT's names
  std::string adapter_config;       // PEFT's adapter_config.json
};
/// `weights` are all tensors of a job, A and B included; their bytes must outlive the result. The
/// adapter of a language model (presets decoder and gpt2) has the names of transformers' modules,
/// so that PEFT loads it on transformers' model. That of a classifier has its last layer, too.
LoraModel split_lora(const ModelSpec& network, const Recipe& recipe,
                     std::span<const TensorView> weights);

}  // namespace trainyard
