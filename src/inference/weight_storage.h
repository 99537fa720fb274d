// src/inference/weight_storage.h: the weights that generation may store in 16 bits, since a step
// takes the time of reading all weights.
#pragma once

#include "src/artifact/model_artifact.h"
#include "src/planning/generation_programs.h"

namespace trainyard {

/// Returns, for a model that computes in bf16 or fp16, all matrices, whose products would round
/// them so in training, too; else the matrices that lose nothing: all of their numbers are bfloat16
/// numbers, or float16 numbers, as in a model that was imported from a file of such numbers.
WeightStorage find_weight_storage(const LoadedModel& model);

}  // namespace trainyard
