// src/train/resident_steps.h: steps of a job with a resident dataset. The inputs of several steps
// are copied to the device at once, one recording computes these steps, and one copy returns all
// results. Otherwise a short step would take the device less time than its launches and copies.
//
// Each step of a recording has its own slot among the inputs and among the results, so recordings
// differ only by their number of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/planning/step_slots.h"
#include "src/runtime/executor.h"
#include "src/train/resident_dataset.h"
#include "src/train/training_session.h"

namespace trainyard {

/// A program and the IDs of its inputs and outputs; without a program `executor` is nullptr.
struct StepProgram {
  Executor* executor = nullptr;
  const ProgramIds* ids = nullptr;
};

class ResidentSteps {
 public:
  /// Allocates slots.device_bytes(). The rows and the programs must outlive this object.
  ResidentSteps(Backend& backend, ResidentDataset& data, const StepSlots& slots, StepProgram train,
                StepProgram update, StepProgram average);

  /// Returns how many of the next `most` steps to submit together: a power of two, so that few
  /// recordings serve all counts. Returns 1 until every kernel has run, and while the executor
  /// waits after each node.
  int64_t together(int64_t most) const;
  /// Submits `count` steps, at most slots.together. next() returns the inputs of one step after the
  /// other; they may be reused when it is called again. After a mark that is made later has been
  /// waited for, `results` has slots.result_bytes for each step.
  void begin(int64_t count, const std::function<TrainingSession::StepInputs()>& next,
             std::byte* results);

 private:
  std::byte* inputs(int64_t step) const { return memory_.get() + step * slots_.input_bytes; }
  std::byte* results(int64_t step) const {
    return memory_.get() + slots_.together * slots_.input_bytes + step * slots_.result_bytes;
  }
  void stage(int64_t step, const TrainingSession::StepInputs& inputs);
  void submit(int64_t count);
  void submit_micro_batch(int64_t step, int64_t micro_batch);
  void submit_step(int64_t step);
  void submit_kernels(const StepProgram& program);
  /// These queue a copy between a tensor and a slot. Queued copies share a launch as long as they
  /// belong to one program, since its inputs and outputs do not share memory.
  void load(const StepProgram& program, TensorId id, const std::byte* from);
  void store(const StepProgram& program, TensorId id, std::byte* to);
  void add_copy(const StepProgram& program, const kernels::CopyPiece& copy);
  void submit_copies();

  Backend& backend_;
  const StepSlots slots_;
  const StepProgram train_, update_, average_;
  ResidentDataset& data_;
  DeviceBuffer memory_;            // [inputs of all steps | their results]
  std::vector<std::byte> staged_;  // the inputs of the steps, before they are copied to the device
  std::vector<kernels::CopyPiece> copies_;
  const Executor* copies_of_ = nullptr;
  bool is_warm_ = false;                                      // whether every kernel has run once
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // by number of steps
};

}  // namespace trainyard
