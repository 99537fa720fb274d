// src/checkpoint/merged_weights.h: the tensors of several safetensors files as the bytes of one
// file, which are generated while they are read. So an upload of such files needs no copy of them.
//
// The bytes depend on the tensors alone, not on how they are split. Tensors whose size is a
// multiple of kMappedAlignment come first, then types with more bytes, then names in their order.
// The data begins at a multiple of kMappedAlignment too, so that kernels can read nearly all
// tensors where they are in the mapped file (src/planning/frozen_storage.h); the format has no room
// for gaps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/weights_file.h"

namespace trainyard {

/// Returns whether a file must be rewritten as merged weights before its 16-bit tensors can be
/// mapped: one that could be aligned is not.
bool needs_alignment(const WeightsFile& file);

class MergedWeights {
 public:
  /// MODEL_FILE_INVALID if the header exceeds its limit.
  static Result<MergedWeights> merge(WeightsFile file);
  int64_t size() const { return size_; }
  /// Appends `count` bytes from `offset` on to `out`. Thread-safe.
  void read(int64_t offset, int64_t count, std::string& out) const;

 private:
  struct Part {
    int64_t begin;  // in the merged file
    std::span<const std::byte> bytes;
  };
  explicit MergedWeights(WeightsFile file) : file_(std::move(file)) {}

  WeightsFile file_;
  std::string prefix_;  // the length of the header and the header
  std::vector<Part> parts_;
  int64_t size_ = 0;
};

}  // namespace trainyard
