// src/train/held_dataset.h: a job's training rows in a device's memory, brought there once. Those
// that are held out lie among them, and evaluations read them there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/planning/held_plan.h"
#include "src/runtime/executor.h"

namespace trainyard {

/// The rows on the host, and what is made of them.
struct HeldSource {
  HeldPlan plan;
  RowTransform transform;
  Partition partition;      // the whole one, with the rows that are held out
  std::vector<float> mean;  // Augmenter::mean()
};

/// Brings the table and the fills to their places in `memory`, which is laid out as planned, and
/// says where all of it lies.
kernels::HeldRows bring_conversion(Backend& backend, std::byte* memory, const HeldPlan& plan,
                                   const RowTransform& transform, const std::vector<float>& mean);

class HeldDataset {
 public:
  /// Allocates plan.bytes and brings the rows there. Throws std::bad_alloc.
  HeldDataset(Backend& backend, const HeldSource& source);

  /// Submits the input and the target (nullptr: none) of `count` samples, which lie on the device,
  /// and copies beside.
  void gather(const kernels::HeldSample* samples, int64_t count, void* input, void* target,
              std::span<const kernels::CopyPiece> copies) {
    backend_.gather_rows(layout_, samples, count, input, target, copies);
  }
  /// Submits the input of an evaluation's run, of rows as they are. `samples` are
  /// plan.evaluation_rows, on the host, and free when it returns.
  void gather_evaluation(std::span<const kernels::HeldSample> samples, void* input);

 private:
  Backend& backend_;
  const HeldPlan plan_;
  DeviceBuffer memory_;
  kernels::HeldRows layout_, evaluation_;  // evaluation_: nothing is moved
};

}  // namespace trainyard
