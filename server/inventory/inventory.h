// server/inventory/inventory.h: the devices of this machine, read without using them.
//
// GPUs are read through NVML, loaded at run time: the daemon never creates a CUDA context. If the
// library, a GPU or the CUDA module is missing, the CPU remains and `note` says what to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/planning/devices.h"
#include "src/runtime/nvml.h"

namespace trainyard::server {

class Inventory {
 public:
  virtual ~Inventory() = default;
  /// Reads everything again. Thread-safe. Never fails: unreadable devices are UNKNOWN or noted.
  virtual Devices read() = 0;
  /// Reports that a device failed a job or could not be opened for one. The device is then checked
  /// before it gets another job.
  virtual void doubt(const std::string& /*device*/) {}
  /// Reports that a job that an earlier daemon started runs on the device, or no longer does.
  virtual void set_inherited(const std::string& /*device*/, bool /*inherited*/) {}
};

struct InventoryOptions {
  // libtrainyard_cuda.so. Without this file GPUs are listed, but not schedulable.
  std::filesystem::path cuda_module;
  std::string nvml_library = kNvmlLibrary;
  int32_t cpu_slots = 1;
  int32_t gpu_slots = 1;
  bool use_gpu = true;
  // Value of CUDA_VISIBLE_DEVICES; nothing: all GPUs are visible.
  std::optional<std::string> visible_gpus;
  std::filesystem::path cpuinfo = "/proc/cpuinfo";
  std::filesystem::path meminfo = "/proc/meminfo";
};
std::unique_ptr<Inventory> make_local_inventory(InventoryOptions options);

}  // namespace trainyard::server
