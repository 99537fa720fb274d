// src/planning/device_choice.h: chooses the device that a job is planned for before the scheduler
// assigns one. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/plan/device_traits.h"
#include "src/planning/devices.h"

namespace trainyard {

struct DeviceChoice {
  std::string device;
  std::string advice;  // the reason as a sentence
  std::string uuid;    // of a GPU; empty for the CPU
};
/// Returns the device on which the job would start now: the first usable GPU whose model has as
/// many usable GPUs as the job requests, else the CPU.
DeviceChoice choose_device(DeviceWish wish, int32_t gpus, int64_t batch_size,
                           const Devices& devices);

/// Returns whether some of the devices cannot compute in this precision.
bool any_is_too_old(const Devices& devices, Precision precision);
/// Returns the devices that can compute in this precision; the others become `too_old`.
Devices devices_for(Devices devices, Precision precision);

/// Refuses a job that the devices can never run: INVALID_ARGUMENT/RESOURCES_IMPOSSIBLE.
Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices);

/// Returns whether the job may run on a GPU, now or when one becomes usable again.
bool may_get_gpu(DeviceWish wish, const Devices& devices);

/// Returns the traits of a plan that is valid wherever the job may run; the worker plans again for
/// its own device. A job that may run on a GPU is planned with a GPU's alignment, and for a GPU's
/// processor only if it cannot run on the CPU, which needs more memory.
DeviceTraits traits_for(DeviceWish wish, const Devices& devices);
/// Returns the traits of the product's backends for a processor.
DeviceTraits traits_of(Processor processor);
/// Returns the traits of a device of this name.
DeviceTraits traits_on(std::string_view device);

/// Returns the device by whose rates and memory `batch_size: auto` is chosen: the one on which the
/// job would start now, or the one for which it would wait.
Device device_of(const DeviceChoice& choice, DeviceWish wish, const Devices& devices);

}  // namespace trainyard
