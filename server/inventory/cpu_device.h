// server/inventory/cpu_device.h: the CPU of this machine as a device.
#pragma once

#include "server/inventory/inventory.h"

namespace trainyard::server {

/// Reads the model name from cpuinfo, the memory from meminfo (bounded by the cgroup's limit, if
/// set) and the number of cores from the scheduling mask. The device's health is UNKNOWN, with a
/// reason, if the memory cannot be read.
Device read_cpu_device(const InventoryOptions& options);

}  // namespace trainyard::server
