#include "src/planning/device_choice.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <vector>

#include "src/planning/recipe_check.h"

namespace trainyard {
namespace {

bool has_gpu(const Devices& devices) {
  return std::ranges::any_of(devices.devices,
                             [](const Device& d) { return d.kind == DeviceKind::kGpu; });
}

/// "bf16 needs a GPU of compute capability 8.0 or later, and devices/gpu-0 (Tesla T4) has 7.5";
/// only for `too_old`.
std::string needs_newer(const Devices& devices) {
  const Device& old = devices.too_old.front();
  return "bf16 needs a GPU of compute capability 8.0 or later, and " + old.name + " (" + old.model +
         ") has " + std::to_string(old.capability / 10) + "." + std::to_string(old.capability % 10);
}

/// Returns whose devices these are.
std::string owner_of(const Devices& devices) {
  return devices.owner.empty() ? "this server" : devices.owner;
}

/// Returns the largest number of equal GPUs that may run a job, now or later.
int32_t most_equal(std::initializer_list<const std::vector<Device>*> lists) {
  std::map<std::string, int32_t> by_group;
  int32_t most = 0;
  for (const std::vector<Device>* devices : lists) {
    for (const Device& d : *devices) {
      // An unhealthy device may recover; a device without the module that supports it cannot.
      const bool may = d.schedulable || d.checking || d.busy || d.health != DeviceHealth::kHealthy;
      if (d.kind == DeviceKind::kGpu && may) most = std::max(most, ++by_group[alike(d)]);
    }
  }
  return most;
}

}  // namespace

bool any_is_too_old(const Devices& devices, Precision precision) {
  return precision == Precision::kBf16 && !std::ranges::all_of(devices.devices, has_bf16);
}

Devices devices_for(Devices devices, Precision precision) {
  if (!any_is_too_old(devices, precision)) return devices;
  std::vector<Device>& all = devices.devices;
  const auto old = std::stable_partition(all.begin(), all.end(), has_bf16);
  devices.too_old.insert(devices.too_old.end(), old, all.end());
  all.erase(old, all.end());
  return devices;
}

DeviceChoice choose_device(DeviceWish wish, int32_t gpus, int64_t batch_size,
                           const Devices& devices) {
  if (wish != DeviceWish::kCpu) {
    for (const Device& device : devices.devices) {
      if (device.kind != DeviceKind::kGpu || !device.schedulable) continue;
      const auto count = std::ranges::count_if(devices.devices, [&](const Device& d) {
        return d.kind == device.kind && alike(d) == alike(device) && d.schedulable;
      });
      if (count < gpus) continue;
      if (gpus > 1) {
        return {device.name,
                std::to_string(gpus) + " GPUs (" + device.model +
                    "), as requested: each computes " + std::to_string(batch_size / gpus) +
                    " of the " + std::to_string(batch_size) +
                    " rows of a batch and needs the memory of this plan.",
                device.uuid};
      }
      return {device.name,
              wish == DeviceWish::kGpu ? "A GPU, as requested." : "A GPU (" + device.model + ").",
              device.uuid};
    }
  }
  DeviceChoice cpu{std::string(kCpuDevice), "The CPU, as requested.", ""};
  if (wish != DeviceWish::kCpu) {
    // The reason is in the list of devices, so it is not repeated for each job.
    cpu.advice = has_gpu(devices)          ? "The CPU: no GPU can be used now."
                 : devices.too_old.empty() ? "The CPU: " + owner_of(devices) + " has no GPU."
                                           : "The CPU: " + needs_newer(devices) + ".";
  }
  if (wish == DeviceWish::kGpu) {  // check_satisfiable() refuses the job if they do not exist
    cpu.advice = "No " + (gpus > 1 ? std::to_string(gpus) + " GPUs of one model" : "GPU") +
                 " can be used now; the job would wait. Planned on the CPU.";
  }
  return cpu;
}

Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices) {
  if (wish != DeviceWish::kGpu) return {};
  const int32_t most = most_equal({&devices.devices});
  if (gpus <= most) return {};
  if (!devices.too_old.empty() && gpus <= most_equal({&devices.devices, &devices.too_old})) {
    return field_error("RESOURCES_IMPOSSIBLE", "spec.recipe.precision",
                       needs_newer(devices) + "; expected " + std::string(kPrecisionsWithoutBf16));
  }
  const std::string where = devices.owner.empty() ? "on this server" : "to " + devices.owner;
  Error e = most == 0 ? field_error("RESOURCES_IMPOSSIBLE", "spec.resources.device",
                                    "gpu is not available " + where + ", expected auto or cpu")
                      : field_error("RESOURCES_IMPOSSIBLE", "spec.resources.gpus",
                                    std::to_string(gpus) + " is not available " + where +
                                        ", expected 1.." + std::to_string(most) +
                                        ", the GPUs of one model that it has");
  if (!devices.note.empty()) e.message += ". " + devices.note;
  e.metadata["gpu_max"] = std::to_string(most);
  return e;
}

bool may_get_gpu(DeviceWish wish, const Devices& devices) {
  return wish != DeviceWish::kCpu && has_gpu(devices);
}

DeviceTraits traits_for(DeviceWish wish, const Devices& devices) {
  return {may_get_gpu(wish, devices) ? kCudaAlignment : kHostAlignment,
          wish == DeviceWish::kGpu ? Processor::kGpu : Processor::kCpu};
}

DeviceTraits traits_of(Processor processor) {
  return {processor == Processor::kGpu ? kCudaAlignment : kHostAlignment, processor};
}
DeviceTraits traits_on(std::string_view device) {
  return traits_of(device == kCpuDevice ? Processor::kCpu : Processor::kGpu);
}

Device device_of(const DeviceChoice& choice, DeviceWish wish, const Devices& devices) {
  const bool waits_for_gpu = wish == DeviceWish::kGpu && choice.device == kCpuDevice;
  const auto found = std::ranges::find_if(devices.devices, [&](const Device& device) {
    return waits_for_gpu ? device.kind == DeviceKind::kGpu : device.name == choice.device;
  });
  return found != devices.devices.end() ? *found : Device();
}

}  // namespace trainyard
