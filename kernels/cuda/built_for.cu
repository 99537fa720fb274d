// probe() is never launched; loading it shows whether the driver can run the compiled code.
#include "kernels/cuda/built_for.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

TRAINYARD_KERNEL void probe() {}

#ifdef __CUDA_ARCH_LIST__
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // as compiled for: 800, 900, ...
#else
constexpr int kArchitectures[] = {0};  // the emulator
#endif

}  // namespace

std::string built_for() {
  std::string text;
  for (const int architecture : kArchitectures) {
    text += (text.empty() ? "" : ", ") + std::to_string(architecture / 100) + "." +
            std::to_string(architecture % 100 / 10);
  }
  return text;
}

cudaError_t check_device_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe));
}

}  // namespace trainyard::kernels::cuda
