// src/runtime/visible_gpus.h: which GPUs a process may use, and by which numbers CUDA knows them.
//
// A GPU's name counts as nvidia-smi does: devices/gpu-N is the N-th of the machine, and
// devices/gpu-N-mig-M an instance of one in MIG mode. CUDA counts those alone that
// CUDA_VISIBLE_DEVICES leaves. So a process that is about to compute on GPUs has their UUIDs there,
// and CUDA knows the first as 0, the next as 1. The daemon starts its workers so, which see no
// other GPU from the outset.
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
/// Of "devices/gpu-0" or "devices/gpu-0-mig-1"; nothing for any other text.
std::optional<GpuName> parse_gpu_name(std::string_view device);

/// Those that a value of CUDA_VISIBLE_DEVICES leaves, all where there is none: numbers as
/// nvidia-smi counts, or the beginnings of UUIDs, up to the first that means no GPU. A GPU that is
/// named stands for all of its instances.
std::vector<NvmlDevice> visible_gpus(std::vector<NvmlDevice> all,
                                     const std::optional<std::string>& setting);
/// The environment's value.
std::optional<std::string> visible_gpus_setting();

/// The name of the n-th of these, from 0, for whoever names none: "devices/gpu-2" where two are
/// hidden. NOT_FOUND/DEVICE_NOT_FOUND where there are not so many; without NVML nobody knows.
Result<std::string> nth_visible_gpu(int n, const std::string& nvml_library = kNvmlLibrary);

/// Makes CUDA see the GPUs among these devices alone, in this order, from its start on: sets
/// CUDA_VISIBLE_DEVICES, to their numbers where there is no NVML. A second call may name the same
/// GPUs alone. NOT_FOUND/DEVICE_NOT_FOUND names a GPU that is not there, or hidden.
Status show_gpus(std::span<const std::string> devices,
                 const std::string& nvml_library = kNvmlLibrary);

}  // namespace trainyard
