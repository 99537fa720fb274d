// src/runtime/visible_gpus.h: which GPUs a process may use, and their numbers in CUDA.
//
// GPU names use nvidia-smi's numbers: devices/gpu-N is the N-th GPU of the machine, and
// devices/gpu-N-mig-M an instance of a GPU in MIG mode. CUDA counts only the GPUs that
// CUDA_VISIBLE_DEVICES lists. So a process that is about to compute on GPUs puts their UUIDs there,
// and CUDA numbers them from 0 in that order. The daemon sets the variable for its workers, which
// see no other GPU from the start.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/nvml.h"

namespace trainyard {

struct GpuName {
  int index = 0;
  std::optional<int> instance;
};
/// Parses "devices/gpu-0" or "devices/gpu-0-mig-1"; nothing for any other text.
std::optional<GpuName> parse_gpu_name(std::string_view device);

/// Returns the GPUs that are visible with `setting` as CUDA_VISIBLE_DEVICES, all if it is not set.
/// Entries are nvidia-smi's numbers, or prefixes of UUIDs; the list ends at the first entry that
/// matches no GPU. The entry of a whole GPU includes all its instances.
std::vector<NvmlDevice> visible_gpus(std::vector<NvmlDevice> all,
                                     const std::optional<std::string>& setting);
/// Returns the environment's value of CUDA_VISIBLE_DEVICES.
std::optional<std::string> visible_gpus_setting();

/// Returns the name of the n-th visible GPU, from 0, for callers that name none: "devices/gpu-2" if
/// two GPUs are hidden. NOT_FOUND/DEVICE_NOT_FOUND if there are fewer; without NVML and
/// CUDA_VISIBLE_DEVICES this cannot be checked.
Result<std::string> nth_visible_gpu(int n, const std::string& nvml_library = kNvmlLibrary);

/// Makes the GPUs among `devices` the only ones visible to CUDA, in this order, by setting
/// CUDA_VISIBLE_DEVICES to their UUIDs, or to their numbers without NVML. Must be called before
/// CUDA starts; a second call may only name the same GPUs. NOT_FOUND/DEVICE_NOT_FOUND with the name
/// of a GPU that does not exist or is hidden.
Status set_visible_gpus(std::span<const std::string> devices,
                        const std::string& nvml_library = kNvmlLibrary);

}  // namespace trainyard
