// src/runtime/cuda/peak.h: the peak rates of a GPU according to NVIDIA.
#pragma once

#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Returns the published figures for the models listed in peak.cc; for other models, rates computed
/// from multiprocessors and clocks, as NVIDIA's own figures are.
DevicePeak peak_of(const Device& device);

}  // namespace trainyard::cuda
