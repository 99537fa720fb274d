// src/runtime/open_backend.h: a backend by the name of its device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// `device` is "devices/cpu" or the name of a GPU (visible_gpus.h), which is from then on the only
/// one that CUDA shows to this process. `threads` bounds the CPU backend's team; 0 stands for all
/// cores that this process may use. Refusals: NOT_FOUND/DEVICE_NOT_FOUND for another name, and
/// those of show_gpus() and open_cuda_backend().
Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads);

/// Whether these can train one job: one device, or several different whole GPUs. INVALID_ARGUMENT/
/// DEVICES_INVALID by the name `field` otherwise.
Status check_devices(std::span<const std::string> devices, const std::string& field);

/// The backends of these devices, connected where they are several, each with `threads`; they share
/// `algorithms`, if there are some. With `peers`, the devices of this process among those of
/// several, each of which makes this call: what keeps one of them from it is the answer of all.
/// Refusals are those of check_devices(), open_backend(), Backend::connect() and join_devices().
Result<std::vector<RankDevice>> open_devices(std::span<const std::string> devices, int threads,
                                             const std::shared_ptr<Algorithms>& algorithms = {},
                                             const std::shared_ptr<Peers>& peers = {});

}  // namespace trainyard
