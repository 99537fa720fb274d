// The runtime compiler, which can be opened unless TRAINYARD_FAKE_CUDA_NVRTC is "missing". See
// fake_cuda.h.
#include <cstdlib>
#include <cstring>

#include "src/runtime/cuda/nvrtc.h"

namespace trainyard::cuda {

std::string nvrtc_library() { return "libnvrtc.so.fake"; }

std::string open_nvrtc(const std::string& library) {
  const char* const text = std::getenv("TRAINYARD_FAKE_CUDA_NVRTC");
  if (text == nullptr || std::strcmp(text, "missing") != 0) return {};
  return library + " is missing";
}

}  // namespace trainyard::cuda
