// tests/cuda/described_device.h: GPUs that exist only as a description, which cuDNN accepts, so
// that the tests can query the real library for its engines on them.
#pragma once

#include <cudnn.h>

#include <string>

#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

/// Empty if this version of cuDNN requires other properties.
inline BackendDescriptor described_device(const std::string& json) {
  cudnnBackendDescriptor_t created = nullptr;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &created) !=
      CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  BackendDescriptor owner(created);
  if (cudnnBackendSetAttribute(created, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               static_cast<int64_t>(json.size()) + 1,
                               json.c_str()) != CUDNN_STATUS_SUCCESS ||
      cudnnBackendFinalize(created) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  return owner;
}

inline BackendDescriptor h100() {
  return described_device(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
          "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 1, "isTccDriver": 0,
          "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
          "l2CacheSize": 52428800, "deviceName": "H100", "deviceVer": 900, "driverVer": 13000,
          "cudaDeviceId": 0, "totalGlobalMem": 85520809984, "cudnnVersion": 91900})");
}

inline BackendDescriptor a100() {
  return described_device(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "regsPerBlock": 65536, "multiProcessorCount": 108, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 166912,
          "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 1, "isTccDriver": 0,
          "supportCoopLaunch": 1, "smClockRateKHz": 1410000, "memClockRateKHz": 1512000,
          "l2CacheSize": 41943040, "deviceName": "A100", "deviceVer": 800, "driverVer": 13000,
          "cudaDeviceId": 0, "totalGlobalMem": 85520809984, "cudnnVersion": 91900})");
}

inline BackendDescriptor b200() {
  return described_device(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "regsPerBlock": 65536, "multiProcessorCount": 148, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
          "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 1, "isTccDriver": 0,
          "supportCoopLaunch": 1, "smClockRateKHz": 1965000, "memClockRateKHz": 3996000,
          "l2CacheSize": 132644864, "deviceName": "B200", "deviceVer": 1000, "driverVer": 13000,
          "cudaDeviceId": 0, "totalGlobalMem": 191514017792, "cudnnVersion": 91900})");
}

inline BackendDescriptor rtx_5090() {
  return described_device(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "regsPerBlock": 65536, "multiProcessorCount": 170, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 101376,
          "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 24,
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 1536, "pciDeviceId": 1, "isTccDriver": 0,
          "supportCoopLaunch": 1, "smClockRateKHz": 2407000, "memClockRateKHz": 14001000,
          "l2CacheSize": 100663296, "deviceName": "RTX 5090", "deviceVer": 1200,
          "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 33668988928,
          "cudnnVersion": 91900})");
}

/// A GPU of compute capability 7.5 with 2 GB. It has no bfloat16, no TF32 and no tensor cores.
inline BackendDescriptor mx450() {
  return described_device(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "regsPerBlock": 65536, "multiProcessorCount": 14, "warpSize": 32,
          "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 65536,
          "reservedSharedMemoryPerBlock": 0, "maxRegistersPerSM": 65536, "maxCtasPerSM": 16,
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 1024, "pciDeviceId": 1, "isTccDriver": 0,
          "supportCoopLaunch": 1, "smClockRateKHz": 1575000, "memClockRateKHz": 5001000,
          "l2CacheSize": 524288, "deviceName": "NVIDIA GeForce MX450", "deviceVer": 750,
          "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 2147483648,
          "cudnnVersion": 91900})");
}

/// The plan of an engine for a described device; empty if the engine refuses.
inline BackendDescriptor described_plan(cudnnBackendDescriptor_t config,
                                        cudnnBackendDescriptor_t device) {
  BackendDescriptor plan = dnn::create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {config});
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, {device});
  if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) return nullptr;
  return plan;
}

}  // namespace trainyard::cuda
