// src/plan/device_traits.h: the properties of a device on which plans depend (Backend::traits()).
#pragma once

#include <cstdint>

#include "kernels/alignment.h"
#include "src/passes/processor.h"

namespace trainyard {

struct DeviceTraits {
  int64_t alignment = kHostAlignment;     // in bytes, for every tensor and workspace
  Processor processor = Processor::kCpu;  // a GPU's programs differ (processor.h)
  bool has_bf16 = true;                   // false: a GPU that cannot compute with bfloat16
};

}  // namespace trainyard
