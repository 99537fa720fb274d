// The models that benchmarks run, by name; peer_models.py builds the same ones in PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/models/model_spec.h"
#include "src/optim/optimizer.h"
#include "src/train/held_dataset.h"

namespace trainyard::bench {

struct BenchModel {
  ModelSpec model;
  ModelInterface interface;
  OptimizerSpec optimizer;
};

/// "mlp" (784-512-512-10), "mlp_small" (784-256-128-10), "lenet5"; "gpt2_mini" (6 layers of 384, 65
/// characters, context 256) and "gpt2_small" (124M, context 64); "vit_tiny"; text models over
/// 20,000 words and rows of 128; "autoencoder", the convolutional one; or a preset on images,
/// "resnet18" (32 x 32) or "resnet18:224". Dropout is off. SGD with momentum; transformers and text
/// models by AdamW. Throws on a name that is none.
BenchModel bench_model(const std::string& name);

/// Rows of a dataset such as a model trains on, for a device that holds them: bytes of images, else
/// floats. They follow no pattern.
class HeldRowsOf {
 public:
  /// Whether a job would hold them: those of MNIST and CIFAR fit a device (kHeldBytesMax), those of
  /// ImageNet do not, and text comes from the host here.
  static bool are_held(const BenchModel& model);
  HeldRowsOf(const BenchModel& model, int64_t rows, int64_t alignment);

  HeldSource source() const { return {plan_, transform_, partition(), {}}; }
  /// Those of batch `step`: `count` rows, one after another, from the first again behind the last.
  std::vector<kernels::HeldSample> samples(int64_t step, int64_t count) const;

 private:
  Partition partition() const;

  DatasetSchema schema_;
  std::vector<uint8_t> pixels_;
  std::vector<float> numbers_;
  std::vector<int32_t> classes_;
  RowTransform transform_;
  HeldPlan plan_;
};

}  // namespace trainyard::bench
