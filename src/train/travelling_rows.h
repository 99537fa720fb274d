// src/train/travelling_rows.h: batches of images of 8 bits, too many to be held on a device, that
// travel there as they are stored and are converted and moved by the kernels that make batches of
// held rows (held_dataset.h). To the same bits, in a quarter of the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/planning/travel_plan.h"
#include "src/train/held_dataset.h"

namespace trainyard {

/// What images become.
struct TravelSource {
  TravelPlan plan;
  RowTransform transform;
  std::vector<float> mean;  // Augmenter::mean()
};

class TravellingRows {
 public:
  /// Allocates plan.bytes. Throws std::bad_alloc.
  TravellingRows(Backend& backend, const TravelSource& source);

  /// What gather() reads, to be brought to the device before it. `samples` are plan.form.rows, and
  /// count from the first of `rows`, which are as they are stored.
  std::array<HostPiece, 2> pieces(std::span<const kernels::HeldSample> samples,
                                  std::span<const std::byte> rows) const;
  /// Submits the input and the target (nullptr: none) of one run.
  void gather(void* input, void* target);

 private:
  Backend& backend_;
  TravelPlan plan_;
  DeviceBuffer memory_;
  kernels::HeldRows layout_;
};

}  // namespace trainyard
