// src/runtime/nvml.h: NVIDIA's management library, loaded at run time.
//
// It only reads, and creates no CUDA context. The few prototypes that it calls are declared in
// nvml.cc, so that building needs no NVIDIA package. Source of the names and layouts: NVML API
// reference, nvml.h, version 2 of init, device count and handle, which have been stable since
// driver 319. Version 2 of waiting for events needs driver 460, and listing a GPU's MIG instances
// needs driver 450.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// A GPU, or a MIG instance of a GPU, which is a separate device to CUDA.
struct NvmlDevice {
  std::string name;  // "gpu-0"; for an instance "gpu-0-mig-1"
  int index = 0;     // index of the GPU
  bool is_instance = false;
  std::string model;
  std::string uuid;      // the identifier for CUDA_VISIBLE_DEVICES
  std::string gpu_uuid;  // of the whole GPU; equal to `uuid` if it is not an instance
  int capability = 0;    // ten times the compute capability, such as 75; 0: unknown
  int64_t memory_bytes = 0;
  int64_t memory_used_bytes = 0;
  // Empty if the driver does not report the value, e.g. for an instance.
  std::optional<int32_t>
      utilisation_percent;  // share of time with a running kernel, in the last sample
  std::optional<int32_t> temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  std::optional<double> energy_joules;  // used since the driver was loaded
  std::string error;                    // not empty: the device is listed but could not be read
};

/// An error of a device that its driver has reported.
struct NvmlXid {
  std::string uuid;
  uint64_t number = 0;
};

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class Nvml {
 public:
  /// Error: NOT_FOUND/NVML_NOT_FOUND if the library is missing, UNAVAILABLE/NVML_FAILED if it does
  /// not start (no driver, mismatching versions). Messages advise what to install.
  static Result<std::unique_ptr<Nvml>> load(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Lists all devices. A GPU in MIG mode is replaced by its instances, or has an error if it has
  /// none. UNAVAILABLE/NVML_FAILED if the driver no longer responds.
  Result<std::vector<NvmlDevice>> read_devices() const;
  /// Returns the errors since the last call, oldest first. Does not wait. Empty if the driver does
  /// not report errors, as in some virtual machines.
  std::vector<NvmlXid> take_xids() const;
  std::string driver_version() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

}  // namespace trainyard
