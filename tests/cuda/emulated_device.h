// tests/cuda/emulated_device.h: shared by the tests that launch kernels on the emulated GPU.
#pragma once

#include <vector>

#include "src/runtime/cuda/device.h"

namespace trainyard::testing {

/// Returns the stream of one emulated GPU, which all tests of the program use.
inline CUstream_st* stream() {
  static const cuda::Device device(0);
  return device.stream();
}

/// Converts the numbers to double, exactly.
inline std::vector<double> wide(const std::vector<float>& v) { return {v.begin(), v.end()}; }

}  // namespace trainyard::testing
