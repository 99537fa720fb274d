// src/runtime/open_backend.h: opens a backend by the name of its device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// `device` is "devices/cpu" or the name of a GPU (visible_gpus.h); that GPU is then the only one
/// visible to CUDA in this process. `threads` is the CPU backend's number of threads; 0 means all
/// cores that this process may use. Errors: NOT_FOUND/DEVICE_NOT_FOUND for another name, and those
/// of set_visible_gpus() and open_cuda_backend().
Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads);

/// Returns OK if these devices can train one job: one device, or several different whole GPUs.
/// Otherwise INVALID_ARGUMENT/DEVICES_INVALID for the field `field`.
Status check_devices(std::span<const std::string> devices, const std::string& field);

/// Returns the backends of these devices, each with `threads`; several backends are connected. They
/// share `algorithms`, if given. With `peers`, the devices belong to one of several processes that
/// each call this function; an error in one of them is returned in all. Errors are those of
/// check_devices(), open_backend(), Backend::connect() and join_devices().
Result<std::vector<RankDevice>> open_devices(std::span<const std::string> devices, int threads,
                                             const std::shared_ptr<Algorithms>& algorithms = {},
                                             const std::shared_ptr<Peers>& peers = {});

}  // namespace trainyard
