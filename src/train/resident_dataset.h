// src/train/resident_dataset.h: a job's training rows, copied to a device's memory once (a resident
// dataset). The validation rows are among them, and evaluations read them there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/planning/resident_plan.h"
#include "src/runtime/executor.h"

namespace trainyard {

/// The rows on the host, and how they are converted.
struct ResidentSource {
  ResidentPlan plan;
  RowTransform transform;
  Partition partition;      // all rows, validation rows included
  std::vector<float> mean;  // from Augmenter::mean()
};

/// Copies the conversion table and the fill values to their planned offsets in `memory`, and
/// returns pointers to all parts of the resident rows.
kernels::ResidentRows copy_conversion(Backend& backend, std::byte* memory, const ResidentPlan& plan,
                                      const RowTransform& transform,
                                      const std::vector<float>& mean);

class ResidentDataset {
 public:
  /// Allocates plan.bytes and copies the rows there. Throws std::bad_alloc.
  ResidentDataset(Backend& backend, const ResidentSource& source);

  /// Submits the kernel that gathers the input and the target (nullptr: none) of `count` samples
  /// and performs `copies`. `samples` are in device memory.
  void gather(const kernels::ResidentSample* samples, int64_t count, void* input, void* target,
              std::span<const kernels::CopyPiece> copies) {
    backend_.gather_rows(layout_, samples, count, input, target, copies);
  }
  /// Submits the gathering of an evaluation batch, without augmentation. `samples` are
  /// plan.evaluation_rows samples in host memory, which may be reused after the call.
  void gather_evaluation(std::span<const kernels::ResidentSample> samples, void* input);

 private:
  Backend& backend_;
  const ResidentPlan plan_;
  DeviceBuffer memory_;
  kernels::ResidentRows layout_, evaluation_;  // evaluation_ is without augmentation
};

}  // namespace trainyard
