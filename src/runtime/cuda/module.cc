// src/runtime/cuda/module.cc: the module's only exported symbol. The caller is
// src/runtime/cuda_module.cc.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda_module.h"

namespace trainyard::cuda {
namespace {

CudaModuleStatus open(int abi, const char* build, int device, Backend** backend, char* error,
                      size_t error_size) noexcept {
  const auto answer = [&](CudaModuleStatus kind, const char* format, const char* argument) {
    std::snprintf(error, error_size, format, argument);
    return kind;
  };
  *backend = nullptr;
  constexpr const char* kBuild = TRAINYARD_VERSION " " __VERSION__;
  if (abi != kCudaModuleAbi || std::strcmp(build, kBuild) != 0) {
    return answer(CudaModuleStatus::kMismatch,
                  "the CUDA module is of another build (%s) than this program; reinstall both",
                  kBuild);
  }
  // Numbers GPUs by PCI address, as NVML does; CUDA's default puts the fastest first. CUDA reads
  // this variable when it starts, which happens below. An operator's own setting is kept.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  try {
    *backend = new CudaBackend(device);
    return CudaModuleStatus::kOpen;
  } catch (const CudaError& e) {
    if (e.fault() == CudaFault::kBusy) {
      return answer(CudaModuleStatus::kBusy,
                    "another process uses the GPU exclusively, or its compute mode prohibits its "
                    "use (nvidia-smi -q -d COMPUTE): %s",
                    e.what());
    }
    return answer(
        e.fault() == CudaFault::kHost ? CudaModuleStatus::kHost : CudaModuleStatus::kUnavailable,
        "%s", e.what());
  } catch (const std::exception& e) {
    return answer(CudaModuleStatus::kUnavailable, "%s", e.what());
  } catch (...) {
    return answer(CudaModuleStatus::kUnavailable, "%s", "the GPU did not start");
  }
}

}  // namespace
}  // namespace trainyard::cuda

extern "C" __attribute__((visibility("default"))) trainyard::CudaModuleStatus trainyard_cuda_open(
    int abi, const char* build, int device, trainyard::Backend** backend, char* error,
    size_t error_size) {
  return trainyard::cuda::open(abi, build, device, backend, error, error_size);
}
