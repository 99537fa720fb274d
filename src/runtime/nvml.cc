#include "src/runtime/nvml.h"

#include <dlfcn.h>

#include <array>
#include <map>

#include "src/base/handle.h"

namespace trainyard {
namespace {

// These declarations are copied from nvml.h.
using NvmlReturn = int;              // 0 is NVML_SUCCESS
constexpr NvmlReturn kNotFound = 6;  // NVML_ERROR_NOT_FOUND
constexpr unsigned kMigEnabled = 1;  // NVML_DEVICE_MIG_ENABLE
struct NvmlDeviceHandle;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlUtilization {
  unsigned gpu;     // percent of the last sample's time
  unsigned memory;  // percent of that time in which memory was read or written
};
constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
struct NvmlEventSet;
struct NvmlEventData {
  NvmlDeviceHandle* device;
  unsigned long long event_type;
  unsigned long long event_data;  // XID events: the XID number
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};
constexpr unsigned long long kXidCriticalError = 0x8;  // nvmlEventTypeXidCriticalError
constexpr int kXidsMax =
    256;  // per call, since an endless flood of events must not block the caller
constexpr unsigned kNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned kVersionBytes = 80;

using Library = Handle<void, dlclose>;

}  // namespace

struct Nvml::Api {
  Library library;
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*device_count)(unsigned*) = nullptr;
  NvmlReturn (*device_by_index)(unsigned, NvmlDeviceHandle**) = nullptr;
  NvmlReturn (*device_name)(NvmlDeviceHandle*, char*, unsigned) = nullptr;
  NvmlReturn (*device_uuid)(NvmlDeviceHandle*, char*, unsigned) = nullptr;
  NvmlReturn (*device_memory)(NvmlDeviceHandle*, NvmlMemory*) = nullptr;
  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  // Null if the driver lacks the function.
  NvmlReturn (*compute_capability)(NvmlDeviceHandle*, int* major, int* minor) = nullptr;
  NvmlReturn (*mig_mode)(NvmlDeviceHandle*, unsigned* now, unsigned* pending) = nullptr;
  NvmlReturn (*instance_count_max)(NvmlDeviceHandle*, unsigned*) = nullptr;
  NvmlReturn (*instance_by_index)(NvmlDeviceHandle*, unsigned, NvmlDeviceHandle**) = nullptr;
  NvmlReturn (*utilization)(NvmlDeviceHandle*, NvmlUtilization*) = nullptr;
  NvmlReturn (*temperature)(NvmlDeviceHandle*, int sensor, unsigned* celsius) = nullptr;
  NvmlReturn (*power_usage)(NvmlDeviceHandle*, unsigned* milliwatts) = nullptr;
  NvmlReturn (*power_limit)(NvmlDeviceHandle*, unsigned* milliwatts) = nullptr;
  NvmlReturn (*total_energy)(NvmlDeviceHandle*, unsigned long long* millijoules) = nullptr;
  NvmlReturn (*event_set_create)(NvmlEventSet**) = nullptr;
  NvmlReturn (*event_set_free)(NvmlEventSet*) = nullptr;
  NvmlReturn (*register_events)(NvmlDeviceHandle*, unsigned long long, NvmlEventSet*) = nullptr;
  NvmlReturn (*event_set_wait)(NvmlEventSet*, NvmlEventData*, unsigned) = nullptr;

  NvmlEventSet* events = nullptr;
  std::map<NvmlDeviceHandle*, std::string>
      uuids;  // of devices with registered events: a lost device no longer returns its own

  /// Registers for XID events. Failures are ignored, since the daemon works without these events.
  void watch_xids() {
    unsigned count = 0;
    if (event_set_create == nullptr || event_set_free == nullptr || register_events == nullptr ||
        event_set_wait == nullptr || device_count(&count) != 0 || event_set_create(&events) != 0) {
      events = nullptr;
      return;
    }
    for (unsigned i = 0; i < count; ++i) {
      NvmlDeviceHandle* handle = nullptr;
      std::array<char, kUuidBytes> uuid{};
      if (device_by_index(i, &handle) != 0) continue;
      if (device_uuid(handle, uuid.data(), kUuidBytes - 1) != 0) continue;
      if (register_events(handle, kXidCriticalError, events) == 0) uuids[handle] = uuid.data();
    }
  }
  std::string text(NvmlReturn code) const { return error_string(code); }
  void describe(NvmlDeviceHandle* handle, NvmlDevice& device) const;
  void read_sensors(NvmlDeviceHandle* handle, NvmlDevice& device) const;
  bool is_divided(NvmlDeviceHandle* handle) const;
  void add_instances(NvmlDeviceHandle* handle, NvmlDevice gpu, std::vector<NvmlDevice>& to) const;
};

void Nvml::Api::describe(NvmlDeviceHandle* handle, NvmlDevice& device) const {
  std::array<char, kNameBytes> model{};
  std::array<char, kUuidBytes> uuid{};
  NvmlMemory memory{};
  NvmlReturn code = device_name(handle, model.data(), kNameBytes - 1);
  if (code == 0) code = device_uuid(handle, uuid.data(), kUuidBytes - 1);
  if (code == 0) code = device_memory(handle, &memory);
  if (code != 0) device.error = text(code);
  device.model = model.data();
  device.uuid = uuid.data();
  device.memory_bytes = static_cast<int64_t>(memory.total);
  device.memory_used_bytes = static_cast<int64_t>(memory.used);
  int major = 0, minor = 0;
  if (compute_capability != nullptr && compute_capability(handle, &major, &minor) == 0) {
    device.capability = 10 * major + minor;  // an instance without its own value has the GPU's
  }
  read_sensors(handle, device);
}

void Nvml::Api::read_sensors(NvmlDeviceHandle* handle, NvmlDevice& device) const {
  NvmlUtilization use{};
  if (utilization != nullptr && utilization(handle, &use) == 0) {
    device.utilisation_percent = static_cast<int32_t>(use.gpu);
  }
  unsigned value = 0;
  if (temperature != nullptr && temperature(handle, kTemperatureGpu, &value) == 0) {
    device.temperature_celsius = static_cast<int32_t>(value);
  }
  constexpr double kMilli = 1e-3;
  if (power_usage != nullptr && power_usage(handle, &value) == 0) {
    device.power_watts = value * kMilli;
  }
  if (power_limit != nullptr && power_limit(handle, &value) == 0) {
    device.power_limit_watts = value * kMilli;
  }
  unsigned long long millijoules = 0;
  if (total_energy != nullptr && total_energy(handle, &millijoules) == 0) {
    device.energy_joules = static_cast<double>(millijoules) * kMilli;
  }
}

bool Nvml::Api::is_divided(NvmlDeviceHandle* handle) const {
  unsigned now = 0, pending = 0;  // a GPU without MIG returns an error
  return mig_mode != nullptr && mig_mode(handle, &now, &pending) == 0 && now == kMigEnabled;
}

void Nvml::Api::add_instances(NvmlDeviceHandle* handle, NvmlDevice gpu,
                              std::vector<NvmlDevice>& to) const {
  const size_t before = to.size();
  unsigned count_max = 0;
  if (instance_count_max == nullptr || instance_by_index == nullptr) {
    gpu.error = "it is in MIG mode, whose instances this driver's NVML cannot list";
  } else if (const NvmlReturn code = instance_count_max(handle, &count_max); code != 0) {
    gpu.error = "its MIG instances: " + text(code);
  }
  for (unsigned i = 0; i < count_max; ++i) {
    NvmlDeviceHandle* instance = nullptr;
    const NvmlReturn code = instance_by_index(handle, i, &instance);
    if (code == kNotFound) continue;
    NvmlDevice device = gpu;
    device.name += "-mig-" + std::to_string(i);
    device.is_instance = true;
    device.energy_joules.reset();  // the GPU's counter has the energy of all its instances
    if (code == 0) {
      describe(instance, device);
    } else {
      device.error = text(code);
    }
    to.push_back(std::move(device));
  }
  if (to.size() > before) return;
  if (gpu.error.empty()) {
    gpu.error =
        "it is in MIG mode and has no instance; create one (nvidia-smi mig -cgi PROFILE -C) or "
        "switch MIG off (nvidia-smi -mig 0)";
  }
  to.push_back(std::move(gpu));
}

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Nvml::~Nvml() {
  if (api_->events != nullptr) (void)api_->event_set_free(api_->events);
  (void)api_->shutdown();
}

Result<std::unique_ptr<Nvml>> Nvml::load(const std::string& library) {
  auto api = std::make_unique<Api>();
  api->library.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!api->library)
    return make_error(ErrorCode::kNotFound, "NVML_NOT_FOUND",
                      library +
                          " was not found; install the NVIDIA driver (in a container, start it "
                          "with the NVIDIA Container Toolkit and --gpus all)");
  const char* missing = nullptr;
  const auto bind_optional = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(api->library.get(), symbol));
  };
  const auto bind = [&](auto& function, const char* symbol) {
    bind_optional(function, symbol);
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
  bind(api->init, "nvmlInit_v2");
  bind(api->shutdown, "nvmlShutdown");
  bind(api->device_count, "nvmlDeviceGetCount_v2");
  bind(api->device_by_index, "nvmlDeviceGetHandleByIndex_v2");
  bind(api->device_name, "nvmlDeviceGetName");
  bind(api->device_uuid, "nvmlDeviceGetUUID");
  bind(api->device_memory, "nvmlDeviceGetMemoryInfo");
  bind(api->driver_version, "nvmlSystemGetDriverVersion");
  bind(api->error_string, "nvmlErrorString");
  bind_optional(api->compute_capability, "nvmlDeviceGetCudaComputeCapability");
  bind_optional(api->mig_mode, "nvmlDeviceGetMigMode");
  bind_optional(api->instance_count_max, "nvmlDeviceGetMaxMigDeviceCount");
  bind_optional(api->instance_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  bind_optional(api->utilization, "nvmlDeviceGetUtilizationRates");
  bind_optional(api->temperature, "nvmlDeviceGetTemperature");
  bind_optional(api->power_usage, "nvmlDeviceGetPowerUsage");
  bind_optional(api->power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  bind_optional(api->total_energy, "nvmlDeviceGetTotalEnergyConsumption");
  bind_optional(api->event_set_create, "nvmlEventSetCreate");
  bind_optional(api->event_set_free, "nvmlEventSetFree");
  bind_optional(api->register_events, "nvmlDeviceRegisterEvents");
  bind_optional(api->event_set_wait, "nvmlEventSetWait_v2");
  if (missing != nullptr)
    return make_error(ErrorCode::kUnavailable, "NVML_FAILED",
                      library + " has no " + missing + "; install a newer NVIDIA driver");
  if (const NvmlReturn code = api->init(); code != 0)
    return make_error(ErrorCode::kUnavailable, "NVML_FAILED",
                      library + " does not start: " + api->text(code) +
                          "; check that the NVIDIA driver is loaded (nvidia-smi)");
  api->watch_xids();
  return std::unique_ptr<Nvml>(new Nvml(std::move(api)));
}

std::vector<NvmlXid> Nvml::take_xids() const {
  std::vector<NvmlXid> xids;
  if (api_->events == nullptr) return xids;
  NvmlEventData data{};
  for (int i = 0; i < kXidsMax && api_->event_set_wait(api_->events, &data, 0) == 0; ++i) {
    const auto uuid = api_->uuids.find(data.device);
    if (uuid == api_->uuids.end() || data.event_type != kXidCriticalError) continue;
    xids.push_back({uuid->second, data.event_data});
  }
  return xids;
}

Result<std::vector<NvmlDevice>> Nvml::read_devices() const {
  unsigned count = 0;
  if (const NvmlReturn code = api_->device_count(&count); code != 0)
    return make_error(ErrorCode::kUnavailable, "NVML_FAILED",
                      "the NVIDIA driver does not answer: " + api_->text(code));
  std::vector<NvmlDevice> devices;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device;
    device.index = static_cast<int>(i);
    device.name = "gpu-" + std::to_string(i);
    NvmlDeviceHandle* handle = nullptr;
    if (const NvmlReturn code = api_->device_by_index(i, &handle); code != 0) {
      device.error = api_->text(code);
    } else {
      api_->describe(handle, device);
      device.gpu_uuid = device.uuid;
      if (device.error.empty() && api_->is_divided(handle)) {
        api_->add_instances(handle, std::move(device), devices);
        continue;
      }
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string Nvml::driver_version() const {
  std::array<char, kVersionBytes> version{};
  return api_->driver_version(version.data(), kVersionBytes - 1) == 0 ? version.data() : "unknown";
}

}  // namespace trainyard
