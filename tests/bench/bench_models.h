// The models that benchmarks run, by name; compare_pytorch.py builds the same ones in PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/models/model_spec.h"
#include "src/optim/optimizer.h"

namespace trainyard::bench {

struct BenchModel {
  ModelSpec model;
  ModelInterface interface;
  OptimizerSpec optimizer;
};

/// "mlp" (784-512-512-10), "mlp_small" (784-256-128-10), "lenet5"; "gpt2_mini" (6 layers of 384, 65
/// characters, context 256) and "gpt2_small" (124M, context 64); "vit_tiny"; text models over
/// 20,000 words and rows of 128; or a preset on images, "resnet18" (32 x 32) or "resnet18:224".
/// Dropout is off. SGD with momentum; transformers and text models by AdamW. Throws on a name that
/// is none.
BenchModel bench_model(const std::string& name);

}  // namespace trainyard::bench
