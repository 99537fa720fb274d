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

/// Bytes that the kernels of the programs ask for besides the plan's: known once they are prepared,
/// by this backend with its threads, and then exact. Allocates nothing on the device.
int64_t measure_workspace(RunPrograms programs, Backend& backend);

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
  /// One optimizer step. Returns the loss; `logits()` is the step's output.
  float run_step(const StepInputs& inputs);
  std::span<const float> logits() const { return logits_; }

  /// One batch of the evaluation program; `input` holds evaluation_batch() rows.
  std::span<const float> evaluate(std::span<const std::byte> input);
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
  std::vector<float> logits_, evaluation_output_;
};

}  // namespace trainyard
