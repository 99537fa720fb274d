// src/train/staged_rows.h: batches of 8-bit images from a dataset too large to be resident on a
// device. The stored bytes are copied to the device batch by batch, where the kernels for resident
// datasets (resident_dataset.h) convert and augment them. The result is bit-identical, with a
// quarter of the copied bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/planning/staged_plan.h"
#include "src/train/resident_dataset.h"

namespace trainyard {

/// How images are converted.
struct StagedSource {
  StagedPlan plan;
  RowTransform transform;
  std::vector<float> mean;  // from Augmenter::mean()
};

class StagedRows {
 public:
  /// Allocates plan.bytes. Throws std::bad_alloc.
  StagedRows(Backend& backend, const StagedSource& source);

  /// Returns the data that gather() reads, as pieces to be copied to the device before it.
  /// `samples` are plan.form.rows samples that count from the first of `rows`; `rows` are in their
  /// stored form.
  std::array<HostPiece, 2> pieces(std::span<const kernels::ResidentSample> samples,
                                  std::span<const std::byte> rows) const;
  /// Submits the gathering of the input and the target (nullptr: none) of one run.
  void gather(void* input, void* target);

 private:
  Backend& backend_;
  StagedPlan plan_;
  DeviceBuffer memory_;
  kernels::ResidentRows layout_;
};

}  // namespace trainyard
