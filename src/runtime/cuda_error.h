// src/runtime/cuda_error.h: the exception for faults of a GPU. Every build has it, with or without
// CUDA, because the worker catches it and reports the cause to the daemon.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace trainyard {

/// The cause of the error, as far as it is known.
enum class CudaFault : uint8_t {
  kDevice,   // the GPU, its memory or a link failed or disappeared; also for unknown causes
  kProgram,  // a kernel or a call did something invalid, likely on every GPU
  kMemory,   // out of memory
  kBusy,     // another process uses the GPU exclusively
  kHost,     // the host's driver or one of its services does not work; the GPU may be intact
};
/// The error reason for kBusy: the operation may be retried.
inline constexpr const char* kDeviceBusy = "DEVICE_BUSY";
/// The error reason for kHost: the operation may be retried after an operator has mended the host.
/// The message says how.
inline constexpr const char* kHostFault = "HOST_FAULT";

/// A CUDA, cuBLASLt or cuDNN call failed. what() has the call, the error number and the library's
/// message.
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& message, int code, CudaFault fault = CudaFault::kDevice)
      : std::runtime_error(message), code_(code), fault_(fault) {}
  int code() const { return code_; }
  CudaFault fault() const { return fault_; }

 private:
  int code_;
  CudaFault fault_;
};

}  // namespace trainyard
