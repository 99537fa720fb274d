// server/planning/device_choice.h: the device that a job is planned for before it has one. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/scheduler/scheduler.h"
#include "src/plan/device_traits.h"

namespace trainyard::server {

struct DeviceChoice {
  std::string device;
  std::string advice;  // why, in a sentence
  std::string uuid;    // of a GPU
};
/// Where the job would start now, as decide() places it.
DeviceChoice choose_device(DeviceWish wish, int32_t gpus, int64_t batch_size,
                           const Devices& devices);

/// Whether the job may run on a GPU, now or when one becomes usable again.
bool may_get_gpu(DeviceWish wish, const Devices& devices);

/// The traits to plan with before the device is known; the worker plans again for its own device. A
/// job that may run on a GPU is planned with a GPU's alignment, and for a GPU's processor only if
/// it cannot run on the CPU, which needs more memory.
DeviceTraits traits_for(DeviceWish wish, const Devices& devices);
/// Those of a device.
DeviceTraits traits_on(std::string_view device);

/// The device whose rates and memory `batch_size: auto` is chosen by: where the job would start
/// now, or for which it would wait.
Device device_of(const DeviceChoice& choice, DeviceWish wish, const Devices& devices);

}  // namespace trainyard::server
