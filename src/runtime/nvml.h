// src/runtime/nvml.h: NVIDIA's management library, loaded at run time.
//
// Only reads; makes no CUDA context. The few prototypes we call are declared in nvml.cc, so that
// building needs no NVIDIA package. Source of the names and layouts: NVML API reference, nvml.h,
// API version 2 of init, device count and handle; they have been stable since driver 319. Waiting
// for events has its second version since driver 460, instances of a GPU (MIG) are listed since
// driver 450.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// A GPU, or an instance of one in MIG mode, which is a device of its own to CUDA.
struct NvmlDevice {
  std::string name;  // "gpu-0"; an instance: "gpu-0-mig-1"
  int index = 0;     // of the GPU
  bool is_instance = false;
  std::string model;
  std::string uuid;      // what CUDA_VISIBLE_DEVICES names it by
  std::string gpu_uuid;  // of the whole GPU; the same where it is not divided
  int64_t memory_bytes = 0;
  int64_t memory_used_bytes = 0;
  // Nothing where the driver does not say, as of an instance.
  std::optional<int32_t> utilisation_percent;  // time with a kernel running, of the last sample
  std::optional<int32_t> temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  std::string error;  // not empty: the device is listed but could not be read
};

/// An error that the driver has reported of a device.
struct NvmlXid {
  std::string uuid;
  uint64_t number = 0;
};

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class Nvml {
 public:
  /// NOT_FOUND/NVML_NOT_FOUND if the library is not there, UNAVAILABLE/NVML_FAILED if it does not
  /// start (no driver, versions that do not match). Messages say what to install.
  static Result<std::unique_ptr<Nvml>> load(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// A GPU in MIG mode is given as its instances, or with an error where it has none. UNAVAILABLE/
  /// NVML_FAILED if the driver does not answer any more.
  Result<std::vector<NvmlDevice>> read_devices() const;
  /// Errors since the last call, oldest first. Never waits. None where the driver does not report
  /// them, as in some virtual machines.
  std::vector<NvmlXid> take_xids() const;
  std::string driver_version() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

}  // namespace trainyard
