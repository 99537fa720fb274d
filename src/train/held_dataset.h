// src/train/held_dataset.h: a job's training rows in a device's memory, brought there once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "src/runtime/backend.h"
#include "src/train/held_plan.h"

namespace trainyard {

/// The rows on the host, and what is made of them.
struct HeldSource {
  HeldPlan plan;
  RowTransform transform;
  Partition partition;      // the whole one: rows that are held out are never asked for
  std::vector<float> mean;  // Augmenter::mean()
};

class HeldDataset {
 public:
  /// Allocates plan.bytes and brings the rows there. Throws std::bad_alloc.
  HeldDataset(Backend& backend, const HeldSource& source);

  /// Submits the input and the target (nullptr: none) of one run. `samples` are plan.samples, and
  /// free when it returns.
  void gather(std::span<const kernels::HeldSample> samples, void* input, void* target);

 private:
  struct Release {
    Backend& backend;
    void operator()(std::byte* memory) const noexcept { backend.release(memory); }
  };
  std::byte* at(int64_t offset) const { return memory_.get() + offset; }
  void bring(int64_t offset, std::span<const std::byte> bytes);

  Backend& backend_;
  int64_t count_;
  std::unique_ptr<std::byte, Release> memory_;
  kernels::HeldSample* samples_;
  kernels::HeldRows layout_;
};

}  // namespace trainyard
