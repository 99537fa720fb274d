// src/train/session.h: a job's programs on a device: one arena, weights in and out, one step at a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/runtime/executor.h"
#include "src/train/programs.h"

namespace trainyard {

/// Host copy of everything that a checkpoint holds. The views point into `storage`.
struct Snapshot {
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorView> weights;    // parameters and state, in the graph's order
  std::vector<TensorView> optimizer;  // optimizer state
};

/// FAILED_PRECONDITION/MODEL_OP_UNSUPPORTED naming each op of the programs for which the backend
/// has no kernel.
Status check_kernels(const RunPrograms& programs, const Backend& backend);

/// Not thread-safe. After construction nothing is allocated on the device.
class Session {
 public:
  Session(RunPrograms programs, Backend& backend);

  void initialise(uint64_t seed);
  /// Takes parameters, state and optimizer state from files; every tensor must be there with its
  /// type, and nothing else may be. DATA_LOSS/CHECKPOINT_MISMATCH otherwise, and the session is
  /// then not to be used.
  Status load(const SafetensorsFile& weights, const SafetensorsFile& optimizer);
  Snapshot snapshot() const;

  struct StepInputs {
    std::span<const std::byte> input;
    std::span<const std::byte> target;
    int64_t step = 0;  // 0-based
    float learning_rate = 0;
  };
  /// One optimizer step. Returns the loss; `logits()` is the step's output [N, K], and empty for a
  /// model that scores the tokens of a sequence: those are too many to read at every step.
  float run_step(const StepInputs& inputs);
  std::span<const float> logits() const { return logits_; }

  /// One batch of the evaluation program; `input` holds evaluation_batch() rows. Then
  /// evaluation_output(row) is what it gave for each of them, valid until the next call.
  void evaluate(std::span<const std::byte> input);
  std::span<const float> evaluation_output(int64_t row);
  int64_t evaluation_batch() const { return evaluation_batch_; }

  int64_t arena_planned_bytes() const { return arena_->size_bytes(); }
  int64_t arena_used_bytes() const;
  int64_t workspace_bytes() const { return arena_->workspace_bytes(); }

 private:
  const Graph& graph() const { return train_->program().graph; }

  BoundProgram train_ids_, evaluate_ids_;  // ids only; the programs live in the executors
  std::optional<Arena> arena_;
  std::optional<Executor> train_, evaluate_;
  int64_t evaluation_batch_ = 0;
  std::vector<float> logits_;
  std::vector<float> evaluation_output_;  // of rows from evaluation_first_ on
  int64_t evaluation_row_elements_ = 0, evaluation_first_ = 0;
};

}  // namespace trainyard
