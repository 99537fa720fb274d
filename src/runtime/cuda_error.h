// src/runtime/cuda_error.h: the fault of a GPU. Known to every build, with or without CUDA, because
// the worker catches it and tells the daemon that the device is suspect.
#pragma once

#include <stdexcept>
#include <string>

namespace trainyard {

/// A CUDA, cuBLASLt or cuDNN call failed. what() names the call, the number and the library's own
/// words.
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& message, int code) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace trainyard
