#include <spdlog/spdlog.h>

#include <map>
#include <optional>
#include <utility>

#include "server/config/log.h"
#include "server/inventory/cpu_device.h"
#include "server/inventory/inventory.h"
#include "server/inventory/xid.h"
#include "src/base/mutex.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard::server {
namespace {

class LocalInventory final : public Inventory {
 public:
  explicit LocalInventory(InventoryOptions options) : options_(std::move(options)) {}

  Devices read() override {
    Devices devices;
    devices.devices.push_back(read_cpu_device(options_));
    if (!options_.use_gpu) {
      devices.note = "GPUs are disabled in this server's configuration.";
      return devices;
    }
    const MutexLock lock(mu_);
    add_gpus(devices);
    return devices;
  }

 private:
  void add_gpus(Devices& devices) TRAINYARD_REQUIRES(mu_) {
    if (!nvml_) {
      // Retried at each read: a driver may be installed or started while the daemon runs.
      Result<std::unique_ptr<Nvml>> loaded = Nvml::load(options_.nvml_library);
      if (!loaded.ok()) {
        devices.note = "No GPU: " + loaded.error().message + ".";
        add_lost(devices, loaded.error().message);
        return;
      }
      nvml_ = std::move(*loaded);
    }
    Result<std::vector<NvmlDevice>> gpus = nvml_->read_devices();
    if (!gpus.ok()) {
      devices.note = "No GPU: " + gpus.error().message + ".";
      add_lost(devices, gpus.error().message);
      nvml_.reset();  // after a restart of the driver the library must be loaded again
      return;
    }
    for (const NvmlXid& report : nvml_->take_xids()) note_xid(report);
    const bool has_module = std::filesystem::exists(options_.cuda_module);
    const bool sees_any = !gpus->empty();
    for (NvmlDevice& gpu : visible_gpus(std::move(*gpus), options_.visible_gpus)) {
      devices.devices.push_back(to_device(std::move(gpu), has_module));
    }
    known_ = {devices.devices.begin() + 1, devices.devices.end()};
    if (!sees_any) {
      devices.note = "No GPU: the NVIDIA driver reports none.";
    } else if (known_.empty()) {
      devices.note = "No GPU: CUDA_VISIBLE_DEVICES=" + *options_.visible_gpus +
                     " hides all GPUs from this server.";
    } else if (!has_module)
      devices.note = "No usable GPU: the CUDA module " + options_.cuda_module.filename().string() +
                     " is not installed; install Trainyard's CUDA package.";
  }

  Device to_device(NvmlDevice gpu, bool has_module) const TRAINYARD_REQUIRES(mu_) {
    Device device;
    device.name = "devices/" + gpu.name;
    device.kind = DeviceKind::kGpu;
    device.model = std::move(gpu.model);
    device.uuid = std::move(gpu.uuid);
    device.capability = gpu.capability;
    device.memory_bytes = gpu.memory_bytes;
    device.memory_used_bytes = gpu.memory_used_bytes;
    device.utilisation_percent = gpu.utilisation_percent;
    device.temperature_celsius = gpu.temperature_celsius;
    device.power_watts = gpu.power_watts;
    device.power_limit_watts = gpu.power_limit_watts;
    device.energy_joules = gpu.energy_joules;
    device.slots = options_.gpu_slots;
    if (!gpu.error.empty()) {
      device.health = DeviceHealth::kUnknown;
      device.reason = "It cannot be used: " + gpu.error + ".";
      device.schedulable = false;
    } else if (!has_module) {
      device.reason = "The CUDA module is not installed.";
      device.schedulable = false;
    }
    device.is_instance = gpu.is_instance;
    if (const auto report = xids_.find(gpu.gpu_uuid); report != xids_.end()) {
      device.faults_reported = report->second.to_check;
      if (!report->second.failure.empty()) {
        device.health = DeviceHealth::kQuarantined;
        device.reason = report->second.failure;
        device.schedulable = false;
      }
    }
    return device;
  }

  void note_xid(const NvmlXid& report) TRAINYARD_REQUIRES(mu_) {
    const Xid xid = describe_xid(report.number);
    spdlog::warn("event=gpu_xid {} xid={} {}", kv("uuid", report.uuid), report.number,
                 kv("message", xid.sentence));
    XidReports& of = xids_[report.uuid];
    if (xid.effect == XidEffect::kCheck) ++of.to_check;
    if (xid.effect != XidEffect::kReset) return;
    of.failure = "Its driver reported " + xid.sentence +
                 "; reset it (nvidia-smi --gpu-reset) or the machine, then restart the server.";
  }

  // Adds the GPUs that were found before but cannot be queried now. They have the health UNKNOWN
  // and get no new jobs.
  void add_lost(Devices& devices, const std::string& why) const TRAINYARD_REQUIRES(mu_) {
    for (Device device : known_) {
      device.health = DeviceHealth::kUnknown;
      device.reason = "The driver does not answer: " + why + ".";
      device.schedulable = false;
      devices.devices.push_back(std::move(device));
    }
  }

  /// The driver's reports about a GPU since this server started.
  struct XidReports {
    int64_t to_check = 0;
    std::string failure;  // a sentence if the GPU must be reset; otherwise empty
  };

  const InventoryOptions options_;
  Mutex mu_;
  // Keyed by the UUID of the whole GPU, not of a MIG instance.
  std::map<std::string, XidReports> xids_ TRAINYARD_GUARDED_BY(mu_);
  std::unique_ptr<Nvml> nvml_ TRAINYARD_GUARDED_BY(mu_);
  std::vector<Device> known_ TRAINYARD_GUARDED_BY(mu_);  // GPUs of the last successful read
};

}  // namespace

std::unique_ptr<Inventory> make_local_inventory(InventoryOptions options) {
  return std::make_unique<LocalInventory>(std::move(options));
}

}  // namespace trainyard::server
