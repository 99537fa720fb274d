// src/planning/devices.h: the description of a machine's devices, for plans, the scheduler and the
// daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

inline constexpr std::string_view kCpuDevice = "devices/cpu";

/// The kind of device that a job requests.
enum class DeviceWish : uint8_t { kAuto = 1, kCpu = 2, kGpu = 3 };  // same numbers as in proto/

enum class DeviceKind : uint8_t { kCpu = 1, kGpu = 2 };  // same numbers as in proto/
enum class DeviceHealth : uint8_t { kHealthy = 1, kDegraded = 2, kQuarantined = 3, kUnknown = 4 };

struct Device {
  std::string name;  // devices/cpu, devices/gpu-0, devices/gpu-0-mig-1
  DeviceKind kind = DeviceKind::kCpu;
  std::string model;  // "NVIDIA H200", the CPU's model name
  std::string uuid;   // only for a GPU or a MIG instance of one
  DeviceHealth health = DeviceHealth::kHealthy;
  std::string reason;  // why the device is not healthy or cannot be used
  int64_t memory_bytes = 0;
  int64_t memory_used_bytes = 0;  // by all processes
  int64_t others_bytes = 0;  // used by other processes than our jobs; the dispatcher's estimate
  int32_t slots = 1;         // the number of jobs that may run on the device at a time
  int32_t cores = 0;         // only for the CPU: cores that this process may use
  bool schedulable = true;   // jobs may start on the device
  // Memory reserved for each process on the device in addition to its job's plan. On a GPU it
  // covers the CUDA context, the code of kernels and libraries, staging buffers and recorded steps.
  int64_t overhead_bytes = 0;
  // GPU: ten times the compute capability, such as 75 for 7.5; 0: unknown.
  int32_t capability = 0;
  bool is_instance = false;  // an instance of a GPU in MIG mode; a CUDA process can use only one
  // GPU: errors reported by the driver, after which the device must be checked again.
  int64_t faults_reported = 0;
  // GPU: values from the driver; nullopt if it does not report them.
  std::optional<int32_t> utilisation_percent, temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  std::optional<double> energy_joules;  // a counter that begins when the driver is loaded
  bool checking = false;  // not schedulable yet: the device is being checked, which takes seconds
  bool busy = false;      // not schedulable yet: another process uses it exclusively
  bool drained = false;   // by an operator's command: no job starts on it (drained_inventory.h)
  bool vacate = false;    // drained, and running jobs must leave the device
};

/// Returns the device's group: a job of several devices must run on devices with equal values.
inline const std::string& alike(const Device& device) {
  return device.is_instance ? device.name : device.model;
}

/// Returns whether the device has bfloat16, as every CPU and every GPU of compute capability 8.0 or
/// later. A GPU of unknown capability counts as new: its worker refuses the job if it is not.
inline bool has_bf16(const Device& device) {
  return device.kind == DeviceKind::kCpu || device.capability == 0 || device.capability >= 80;
}

struct Devices {
  std::vector<Device> devices;  // the CPU first, then GPUs by index
  std::string note;  // why there is no usable GPU, and what to install; empty if there is one
  std::string cluster = {};  // the devices are a node's of this cluster; empty: of this machine
  // The machine's GPUs that are not in `devices` because a job's precision needs newer ones
  // (devices_for()).
  std::vector<Device> too_old = {};
  // Who may use no others, such as "the project vision"; empty: `devices` are all.
  std::string owner = {};
};

}  // namespace trainyard
