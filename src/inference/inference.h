// src/inference/inference.h: a trained model's forward program on a device, with its weights.
// Prediction, generation and evaluation share it.
#pragma once

#include <optional>
#include <span>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/planning/programs.h"
#include "src/runtime/executor.h"

namespace trainyard {

/// Copies a model's parameters and state into a program's memory. MODEL_FILE_INVALID if a weight is
/// missing or has another type.
Status write_weights(const SafetensorsFile& weights, Executor& executor);

/// Not thread-safe. Allocates device memory only during construction.
class Inference {
 public:
  /// `bound` must come from compile_inference(). MODEL_FILE_INVALID if a weight is missing or has
  /// another type.
  static Result<std::unique_ptr<Inference>> open(BoundProgram bound, const SafetensorsFile& weights,
                                                 Backend& backend);

  /// Computes one batch; `input` has the size of the program's input. `positions` are those of rows
  /// of documents.
  void run(std::span<const std::byte> input, std::span<const std::byte> positions = {});
  /// Copies part of the output of the last run(), starting at element `first`.
  void read_output(std::span<float> values, int64_t first = 0) const;

 private:
  Inference(BoundProgram bound, Backend& backend);
  TensorId input_, positions_, output_;
  std::optional<Arena> arena_;
  std::optional<Executor> executor_;
};

}  // namespace trainyard
