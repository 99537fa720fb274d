// src/runtime/cuda/peak.h: the peak rates of a GPU according to NVIDIA.
#pragma once

#include "src/runtime/cuda/device.h"
#include "src/runtime/device_peak.h"

namespace trainyard::cuda {

/// Returns the peak rates from what CUDA reports about the device (device_peak.h). Throws
/// CudaError.
DevicePeak peak_of(const Device& device);

}  // namespace trainyard::cuda
