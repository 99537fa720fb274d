// The models of the benchmarks, by name; peer_models.py builds the same ones in PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/models/model_spec.h"
#include "src/optim/optimizer.h"
#include "src/train/resident_dataset.h"

namespace trainyard::bench {

struct BenchModel {
  ModelSpec model;
  ModelInterface interface;
  OptimizerSpec optimizer;
};

/// "mlp" (784-512-512-10), "mlp_small" (784-256-128-10), "lenet5"; "gpt2_mini" (6 layers of 384, 65
/// characters, context 256) and "gpt2_small" (124M, context 64); "smollm2" (SmolLM2-135M, context
/// 256); "vit_tiny"; text models over
/// 20,000 words and rows of 128; "autoencoder", the convolutional one; or a preset on images,
/// "resnet18" (32 x 32) or "resnet18:224". Dropout is off. SGD with momentum; AdamW for
/// transformers and text models. Throws on an unknown name.
BenchModel bench_model(const std::string& name);

/// A resident dataset such as the model's training would have on a device: image bytes, or floats.
/// The values are pseudo-random.
class ResidentRowsOf {
 public:
  /// Returns whether a job's dataset would be resident: those of MNIST and CIFAR fit on a device
  /// (kResidentBytesMax), that of ImageNet does not, and text comes from the host in the
  /// benchmarks.
  static bool are_resident(const BenchModel& model);
  ResidentRowsOf(const BenchModel& model, int64_t rows, int64_t alignment);

  ResidentSource source() const { return {plan_, transform_, partition(), {}}; }
  /// Returns the samples of batch `step`: `count` consecutive rows, starting again at the first row
  /// after the last.
  std::vector<kernels::ResidentSample> samples(int64_t step, int64_t count) const;

 private:
  Partition partition() const;

  DatasetSchema schema_;
  std::vector<uint8_t> pixels_;
  std::vector<float> numbers_;
  std::vector<int32_t> classes_;
  RowTransform transform_;
  ResidentPlan plan_;
};

}  // namespace trainyard::bench
