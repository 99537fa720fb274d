// src/runtime/cuda_error.h: the fault of a GPU. Known to every build, with or without CUDA, because
// the worker catches it and tells the daemon that the device is suspect.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace trainyard {

/// Whose fault it is, as far as the error tells.
enum class CudaFault : uint8_t {
  kDevice,   // the GPU, its memory or a link failed, or it is gone; also what nobody knows
  kProgram,  // a kernel or a call did what it must not: likely the same on every GPU
  kMemory,   // no room
  kBusy,     // another process has the GPU for itself
};
/// The reason of a refusal for the latter: it may be tried again.
inline constexpr const char* kDeviceBusy = "DEVICE_BUSY";

/// A CUDA, cuBLASLt or cuDNN call failed. what() names the call, the number and the library's own
/// words.
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
