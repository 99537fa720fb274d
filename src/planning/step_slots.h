// src/planning/step_slots.h: plans the memory block for a step's inputs and the one for its
// results, and how many steps are submitted together. Needs no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/planning/programs.h"

namespace trainyard {

/// The most steps that are submitted together, with one copy in each direction and one launch of a
/// recorded graph. A request to stop waits for all of them, and a loss that is not finite is
/// noticed only after them.
inline constexpr int64_t kStepsTogetherMax = 16;

/// The layout of both blocks. Members named `..._at` are offsets in bytes.
struct StepSlots {
  /// The scalar inputs that the programs of a step read.
  struct Scalars {
    int64_t step = 0;
    float learning_rate = 0;
  };
  struct MicroBatch {
    int64_t index = 0;
    int64_t step = 0;  // number of the micro-batch in the job; the counter for random numbers
  };

  int64_t together = 1;  // the number of steps that are submitted together
  int64_t micro_batches = 1;
  Rank rank;
  int64_t rows = 0;  // per run of the training program
  // A step's inputs: Scalars, a MicroBatch for each micro-batch, then the samples of all
  // (kernels/resident_rows.h) if the dataset is resident.
  int64_t samples_at = 0, input_bytes = 0;
  // A step's results: for each micro-batch the loss and, if it is read, the output; then the
  // gradient norm, and the scale and learning rate that loss scaling set.
  bool reads_output = false;
  int64_t output_at = 0, micro_batch_bytes = 0;
  int64_t norm_at = 0, scale_at = 0, rate_at = 0, result_bytes = 0;

  /// Returns the memory on a device with a resident dataset: the inputs of all steps, then their
  /// results.
  int64_t device_bytes() const { return together * (input_bytes + result_bytes); }
  /// Returns this rank's part of a micro-batch of a step's batch. A micro-batch has the same rows
  /// as on a single device, and each rank computes an equal part of them.
  template <typename T>
  std::span<T> part(std::span<T> batch, int64_t micro_batch) const {
    const size_t size = batch.size() / static_cast<size_t>(micro_batches * rank.count);
    return batch.subspan(size * static_cast<size_t>(micro_batch * rank.count + rank.index), size);
  }
};
StepSlots plan_step_slots(const RunPrograms& programs, int64_t micro_batches, Rank rank);

}  // namespace trainyard
