// src/planning/step_slots.h: the inputs and results of a step, as one block each, and how many
// steps of a job are submitted at once. Known without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/planning/programs.h"

namespace trainyard {

/// The most steps that are submitted at once: one copy each way and one launch of a graph then
/// stand for so many. A stop waits for them, and a loss that is not finite is seen behind them.
inline constexpr int64_t kStepsTogetherMax = 16;

/// Offsets in bytes.
struct StepSlots {
  /// What the programs of a step read besides its rows; each learning rate and step is in one.
  struct Scalars {
    int64_t step = 0;
    float learning_rate = 0;
  };
  struct MicroBatch {
    int64_t index = 0;
    int64_t step = 0;  // which one of the job: it keys what is random in the model
  };

  int64_t together = 1;  // steps that are submitted at once
  int64_t micro_batches = 1;
  Rank rank;
  int64_t rows = 0;  // of a run of the training program
  // A step's inputs: Scalars, a MicroBatch for each, then their samples (kernels/held_rows.h), on
  // a device that holds the rows.
  int64_t samples_at = 0, input_bytes = 0;
  // Its results: of each micro-batch the loss and, where it is read, the output; behind them the
  // gradient norm and what loss scaling made of the step.
  bool reads_output = false;
  int64_t output_at = 0, micro_batch_bytes = 0;
  int64_t norm_at = 0, scale_at = 0, rate_at = 0, result_bytes = 0;

  /// Of a device that holds the rows: the inputs of all steps, then their results.
  int64_t device_bytes() const { return together * (input_bytes + result_bytes); }
  /// What this rank computes of a step's batch: a micro-batch has the rows that one device would
  /// take, and each rank an equal part of them.
  template <typename T>
  std::span<T> part(std::span<T> batch, int64_t micro_batch) const {
    const size_t size = batch.size() / static_cast<size_t>(micro_batches * rank.count);
    return batch.subspan(size * static_cast<size_t>(micro_batch * rank.count + rank.index), size);
  }
};
StepSlots plan_step_slots(const RunPrograms& programs, int64_t micro_batches, Rank rank);

}  // namespace trainyard
