// tests/cuda/emulated_device.h: the stream on which tests run kernels of the emulated device.
#pragma once

#include <vector>

#include "src/runtime/cuda/device.h"

namespace trainyard::testing {

inline CUstream_st* stream() {
  static const cuda::Device device(0);
  return device.stream();
}

/// The same numbers as doubles.
inline std::vector<double> wide(const std::vector<float>& v) { return {v.begin(), v.end()}; }

}  // namespace trainyard::testing
