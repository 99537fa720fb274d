// src/runtime/cuda/nvrtc.h: NVIDIA's runtime compiler, which cuDNN opens for the engines that it
// compiles when a plan is made. Without it cuDNN silently has fewer.
#pragma once

#include <string>

namespace trainyard::cuda {

/// "libnvrtc.so." and the major version of the toolkit that this was built with.
std::string nvrtc_library();
/// Opens it, for good: cuDNN then finds it under its name. Empty, or a sentence that says what is
/// lost and what to install.
std::string open_nvrtc(const std::string& library = nvrtc_library());

}  // namespace trainyard::cuda
