// src/runtime/open_backend.h: a backend by the name of its device.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// `device` is "devices/cpu" or "devices/gpu-N". `threads` bounds the CPU backend's team; 0 stands
/// for all cores that this process may use. Refusals: NOT_FOUND/DEVICE_NOT_FOUND for another name,
/// and what open_cuda_backend() refuses.
Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads);

}  // namespace trainyard
