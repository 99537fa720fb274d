// src/planning/lora.h: checks of recipe.lora (low-rank adaptation, src/models/lora.h), and its
// parameter groups.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/models/lora.h"

namespace trainyard {

/// Checks the ranges of recipe.lora. Refusals name the fields as users write them.
Status check_lora(const LoraSpec& lora);

/// Returns parameter groups that precede the recipe's own groups and freeze all parameters except A
/// and B, and those of the model's trained_layer.
std::vector<ParameterGroup> lora_groups(const LoraSpec& lora, const Model& model);

/// Checks recipe.lora against the built model. Refuses a target pattern that matches no layer, and
/// groups of the recipe that freeze only frozen parameters or train a target's own weight.
Status check_lora_model(const Recipe& recipe, const Model& model, const std::stop_token& stop = {});

}  // namespace trainyard
