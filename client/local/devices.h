// client/local/devices.h: chooses the devices on which a command works, from its options and the
// spec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::cli {

/// Converts "cpu", "gpu" (the first visible GPU) or "gpu-N" to the engine's name of the device.
Result<std::string> pick_device(const std::string& wish);

/// Returns the engine's names of the spec's devices, or of those in `flag`: one device, or several
/// GPUs ("gpu-0,gpu-1"). `auto` means the CPU, because nothing here compares devices.
Result<std::vector<std::string>> pick_devices(const v1::Resources& resources,
                                              const std::string& flag);

/// Returns the number of threads: `flag`, else the spec's, else one for each usable core.
Result<int> pick_threads(const v1::Resources& resources, int64_t flag);

}  // namespace trainyard::cli
