// src/runtime/cuda/nvrtc.h: loads NVIDIA's runtime compiler, which cuDNN needs for engines that are
// compiled when a plan is created. Without it cuDNN silently offers fewer engines.
#pragma once

#include <string>

namespace trainyard::cuda {

/// "libnvrtc.so." followed by the major version of the CUDA toolkit of this build.
std::string nvrtc_library();
/// Loads the library permanently, so that cuDNN finds it by its name. Returns an empty string, or a
/// sentence that describes the consequences and what to install.
std::string open_nvrtc(const std::string& library = nvrtc_library());

}  // namespace trainyard::cuda
