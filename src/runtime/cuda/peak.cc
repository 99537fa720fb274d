#include "src/runtime/cuda/peak.h"

namespace trainyard::cuda {
namespace {

int attribute(const Device& device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.ordinal()), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

DevicePeak peak_of(const Device& device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
  // CUDA's clocks are in kHz.
  return trainyard::peak_of({.model = properties.name,
                             .major = properties.major,
                             .minor = properties.minor,
                             .multiprocessors = properties.multiProcessorCount,
                             .clock_hz = 1e3 * attribute(device, cudaDevAttrClockRate),
                             .memory_clock_hz = 1e3 * attribute(device, cudaDevAttrMemoryClockRate),
                             .memory_width_bits = static_cast<double>(
                                 attribute(device, cudaDevAttrGlobalMemoryBusWidth))});
}

}  // namespace trainyard::cuda
