// src/plan/device_traits.h: what of a device its programs depend on (Backend::traits()).
#pragma once

#include <cstdint>

#include "kernels/alignment.h"
#include "src/passes/processor.h"

namespace trainyard {

struct DeviceTraits {
  int64_t alignment = kHostAlignment;     // of every tensor and workspace, in bytes
  Processor processor = Processor::kCpu;  // only a GPU's programs have heads in chunks
};

}  // namespace trainyard
