// src/planning/device_choice.h: the device that a job is planned for before it has one. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/plan/device_traits.h"
#include "src/planning/devices.h"

namespace trainyard {

struct DeviceChoice {
  std::string device;
  std::string advice;  // why, in a sentence
  std::string uuid;    // of a GPU
};
/// Where the job would start now: on the first GPU of a model of which there are as many as it asks
/// for, else on the CPU.
DeviceChoice choose_device(DeviceWish wish, int32_t gpus, int64_t batch_size,
                           const Devices& devices);

/// Whether the devices could ever run the job. INVALID_ARGUMENT/RESOURCES_IMPOSSIBLE.
Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices);

/// Whether the job may run on a GPU, now or when one becomes usable again.
bool may_get_gpu(DeviceWish wish, const Devices& devices);

/// The traits of a plan that holds wherever the job may run; the worker plans again for its own
/// device. A job that may run on a GPU is planned with a GPU's alignment, and for a GPU's processor
/// only if it cannot run on the CPU, which needs more memory.
DeviceTraits traits_for(DeviceWish wish, const Devices& devices);
/// The traits of the product's backends for a processor.
DeviceTraits traits_of(Processor processor);
/// The traits of a device of this name.
DeviceTraits traits_on(std::string_view device);

/// The device whose rates and memory `batch_size: auto` is chosen by: where the job would start
/// now, or for which it would wait.
Device device_of(const DeviceChoice& choice, DeviceWish wish, const Devices& devices);

}  // namespace trainyard
