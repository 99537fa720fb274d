// src/runtime/cuda/peak.h: what a GPU can do at most, as its maker says.
#pragma once

#include "src/runtime/backend.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Of the models below the published figures; of others what follows from multiprocessors and
/// clocks, which is what the maker's figures are made of too.
DevicePeak peak_of(const Device& device);

}  // namespace trainyard::cuda
