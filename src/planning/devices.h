// src/planning/devices.h: the devices of a machine, as plans, the scheduler and the daemon know
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

inline constexpr std::string_view kCpuDevice = "devices/cpu";

/// The kind of device that a job asks for.
enum class DeviceWish : uint8_t { kAuto = 1, kCpu = 2, kGpu = 3 };  // as on the wire

enum class DeviceKind : uint8_t { kCpu = 1, kGpu = 2 };  // as on the wire
enum class DeviceHealth : uint8_t { kHealthy = 1, kDegraded = 2, kQuarantined = 3, kUnknown = 4 };

struct Device {
  std::string name;  // devices/cpu, devices/gpu-0, devices/gpu-0-mig-1
  DeviceKind kind = DeviceKind::kCpu;
  std::string model;  // "NVIDIA H200", the CPU's model name
  std::string uuid;   // GPU, or an instance of one
  DeviceHealth health = DeviceHealth::kHealthy;
  std::string reason;  // why it is not healthy, or cannot be used
  int64_t memory_bytes = 0;
  int64_t memory_used_bytes = 0;  // by anyone
  int64_t others_bytes = 0;  // of these, by what are no jobs of ours; the dispatcher's estimate
  int32_t slots = 1;         // jobs it may run at a time
  int32_t cores = 0;         // CPU: cores this process may use
  bool schedulable = true;   // jobs may start here
  // Memory reserved for each process on it in addition to its job's plan: of a GPU CUDA's context,
  // code of kernels and libraries, staging, recorded steps.
  int64_t overhead_bytes = 0;
  bool is_instance = false;  // of a GPU in MIG mode: CUDA gives a process one of them alone
  int64_t faults_told =
      0;  // GPU: errors reported by its driver, after which it must be checked again
  // GPU: as its driver tells; nothing where it does not.
  std::optional<int32_t> utilisation_percent, temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  bool checking = false;  // not schedulable yet: it is being checked, which takes seconds
  bool busy = false;      // not schedulable yet: another process uses it exclusively
  bool drained = false;   // by command: nothing starts on it (drained_inventory.h)
  bool vacate = false;    // drained, and the jobs on it are to leave
};

/// Devices with equal values may share a job of several devices.
inline const std::string& alike(const Device& device) {
  return device.is_instance ? device.name : device.model;
}

struct Devices {
  std::vector<Device> devices;  // the CPU first, then GPUs by index
  std::string note;  // why there is no usable GPU, and what to install; empty if there is one
  std::string cluster = {};  // of a node of this cluster; empty: of this machine
};

}  // namespace trainyard
