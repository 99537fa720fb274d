// server/inventory/cpu_device.h: the CPU of this machine as a device.
#pragma once

#include "server/inventory/inventory.h"

namespace trainyard::server {

/// Model name from cpuinfo, memory from meminfo (bounded by the cgroup's limit, if set), cores from
/// the scheduling mask. UNKNOWN with a reason if they cannot be read.
Device read_cpu_device(const InventoryOptions& options);

}  // namespace trainyard::server
