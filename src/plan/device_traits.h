// src/plan/device_traits.h: what of a device its programs depend on (Backend::traits()).
#pragma once

#include <cstdint>

#include "kernels/alignment.h"
#include "src/passes/processor.h"

namespace trainyard {

struct DeviceTraits {
  int64_t alignment = kHostAlignment;     // of every tensor and workspace, in bytes
  Processor processor = Processor::kCpu;  // a GPU's have heads in chunks, copies of biases, masks
};

}  // namespace trainyard
