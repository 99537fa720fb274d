// src/planning/known_gpus.h: GPUs that a user can name without having one, to compare a job's time
// and cost there with the CPU's (gpu_comparison.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/runtime/device_peak.h"

namespace trainyard {

struct KnownGpu {
  std::string_view name;  // "rtx-3060"
  GpuFacts facts;
  int64_t memory_bytes = 0;
};

/// All known GPUs, by compute capability, then by memory and speed. Their facts are those that
/// NVIDIA publishes; boards of other makers may have other clocks.
std::span<const KnownGpu> known_gpus();

/// Parses a comma-separated list of names, or "all" for every known GPU. Case and the separators
/// within a name do not count: "RTX 3060" is rtx-3060. A GPU that is named twice is returned once.
/// The error, of `field`, lists the known names.
Result<std::vector<const KnownGpu*>> find_known_gpus(std::string_view names,
                                                     const std::string& field);

}  // namespace trainyard
