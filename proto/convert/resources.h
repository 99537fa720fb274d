// proto/convert/resources.h: the devices that a job's resources request.
#pragma once

#include <cstdint>

#include "src/planning/devices.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {

inline DeviceWish wish_of(const v1::Resources& resources) {
  switch (resources.device()) {
    case v1::Resources::CPU:
      return DeviceWish::kCpu;
    case v1::Resources::GPU:
      return DeviceWish::kGpu;
    default:
      return DeviceWish::kAuto;
  }
}

/// Returns the number of GPUs of each node; 1 for a job that names none, which uses one device.
inline int32_t gpus_of(const v1::Resources& resources) {
  return resources.has_gpus() ? resources.gpus() : 1;
}

/// Returns the number of a cluster's nodes that train the job together; 1 for a job that names
/// none.
inline int32_t nodes_of(const v1::Resources& resources) {
  return resources.has_nodes() ? resources.nodes() : 1;
}

/// Returns the number of devices of all nodes.
inline int32_t ranks_of(const v1::Resources& resources) {
  return nodes_of(resources) * gpus_of(resources);
}

}  // namespace trainyard
