#include "src/runtime/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace trainyard::cuda {

std::string nvrtc_library() { return "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000); }

std::string open_nvrtc(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) != nullptr) return {};
  return library +
         " is missing: without it cuDNN has fewer engines, so that attention in 16 bits runs on "
         "slower kernels, and convolutions may; install NVRTC of CUDA " +
         std::to_string(CUDART_VERSION / 1000) + " (package cuda-nvrtc)";
}

}  // namespace trainyard::cuda
