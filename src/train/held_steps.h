// src/train/held_steps.h: steps of a job whose rows the device holds. What several of them read
// goes there in one copy, one recording computes them, and one copy brings all results back: a
// short step would else take the device less time than what surrounds it.
//
// The k-th step of a recording has its place among the inputs and among the results, so a recording
// for each count is all that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/planning/step_slots.h"
#include "src/runtime/executor.h"
#include "src/train/held_dataset.h"
#include "src/train/training_session.h"

namespace trainyard {

/// A program and the ids of what goes in and comes out; none where `executor` is nullptr.
struct StepProgram {
  Executor* executor = nullptr;
  const ProgramIds* ids = nullptr;
};

class HeldSteps {
 public:
  /// Allocates slots.device_bytes(). The rows and the programs outlive this.
  HeldSteps(Backend& backend, HeldDataset& data, const StepSlots& slots, StepProgram train,
            StepProgram update, StepProgram average);

  /// How many of the next `most` steps to begin at once: a power of two, so that few recordings
  /// serve all counts. One until every kernel has run, and while each is waited for.
  int64_t together(int64_t most) const;
  /// Submits so many steps, at most slots.together; next() gives the inputs of one after another,
  /// free when it is called again. Behind a mark that is made later, `results` has a slot of
  /// slots.result_bytes for each.
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
  /// Copies between a tensor and a slot wait for those that may share their launch: of one program,
  /// whose inputs and outputs keep their memory.
  void load(const StepProgram& program, TensorId id, const std::byte* from);
  void store(const StepProgram& program, TensorId id, std::byte* to);
  void add_copy(const StepProgram& program, const kernels::CopyPiece& copy);
  void submit_copies();

  Backend& backend_;
  const StepSlots slots_;
  const StepProgram train_, update_, average_;
  HeldDataset& data_;
  DeviceBuffer memory_;            // [inputs of all steps | their results]
  std::vector<std::byte> staged_;  // inputs
  std::vector<kernels::CopyPiece> copies_;
  const Executor* copies_of_ = nullptr;
  bool is_warm_ = false;                                      // every kernel has run
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // by count
};

}  // namespace trainyard
