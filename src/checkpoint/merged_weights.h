// src/checkpoint/merged_weights.h: the tensors of several safetensors files as the bytes of one
// file, which are generated while they are read. So an upload of such files needs no copy of them.
//
// The bytes depend on the tensors alone, not on how they are split: types with more bytes come
// first, then names in their order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/weights_file.h"

namespace trainyard {

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
