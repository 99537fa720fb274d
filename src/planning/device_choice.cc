#include "src/planning/device_choice.h"

#include <algorithm>
#include <map>

namespace trainyard {
namespace {

bool has_gpu(const Devices& devices) {
  return std::ranges::any_of(devices.devices,
                             [](const Device& d) { return d.kind == DeviceKind::kGpu; });
}

}  // namespace

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
    cpu.advice =
        has_gpu(devices) ? "The CPU: no GPU can be used now." : "The CPU: this server has no GPU.";
  }
  if (wish == DeviceWish::kGpu) {  // check_satisfiable() refuses the job if they do not exist
    cpu.advice = "No " + (gpus > 1 ? std::to_string(gpus) + " GPUs of one model" : "GPU") +
                 " can be used now; the job would wait. Planned on the CPU.";
  }
  return cpu;
}

Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices) {
  if (wish != DeviceWish::kGpu) return {};
  std::map<std::string, int32_t> by_group;
  int32_t most = 0;
  for (const Device& d : devices.devices) {
    // An unhealthy device may recover; a device without the module that supports it cannot.
    const bool may = d.schedulable || d.checking || d.busy || d.health != DeviceHealth::kHealthy;
    if (d.kind == DeviceKind::kGpu && may) most = std::max(most, ++by_group[alike(d)]);
  }
  if (gpus <= most) return {};
  Error e =
      most == 0
          ? field_error("RESOURCES_IMPOSSIBLE", "spec.resources.device",
                        "gpu is not available on this server, expected auto or cpu")
          : field_error("RESOURCES_IMPOSSIBLE", "spec.resources.gpus",
                        std::to_string(gpus) + " is not available on this server, expected 1.." +
                            std::to_string(most) + ", the GPUs of one model that it has");
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
