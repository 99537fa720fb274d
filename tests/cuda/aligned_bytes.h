// tests/cuda/aligned_bytes.h: memory like a kernel's workspace: aligned and not zeroed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/alignment.h"

namespace trainyard::testing {

struct alignas(kCudaAlignment) AlignedBlock {
  std::array<std::byte, kCudaAlignment> bytes;
};

inline std::vector<AlignedBlock> aligned_bytes(int64_t count) {
  AlignedBlock block;
  block.bytes.fill(std::byte{0xFF});
  return std::vector<AlignedBlock>(
      static_cast<size_t>(round_up(count, kCudaAlignment) / kCudaAlignment), block);
}

}  // namespace trainyard::testing
