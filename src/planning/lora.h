// src/planning/lora.h: what low-rank additions (src/models/lora.h) mean for a recipe.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/models/lora.h"

namespace trainyard {

/// Ranges of recipe.lora, by the name that users write.
Status check_lora(const LoraSpec& lora);

/// The groups that stand before the recipe's own: everything is frozen but A and B.
std::vector<ParameterGroup> lora_groups(const LoraSpec& lora);

/// Against the built model: a target pattern that matches no layer, and groups of the recipe that
/// freeze what is frozen or train a target's own weight.
Status check_lora_model(const Recipe& recipe, const Model& model, const std::stop_token& stop = {});

}  // namespace trainyard
