// src/runtime/cuda_module.h: opens libtrainyard_cuda.so at run time.
//
// No program links a CUDA library, so that one package serves hosts with and without a GPU. The
// module links them; trainyard-worker and `trainyard local` load it here. If it cannot be used, the
// result is an error with a sentence, never a fault: a job with device `auto` then runs on the CPU
// and reports the reason.
//
// C++ objects cross the library boundary, so the module and the program must come from the same
// build; the entry point checks it. The module is never unloaded, because CUDA's libraries keep
// threads and exit handlers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// Increased when the layout of Backend, Kernel, KernelArgs or a type that they use changes.
constexpr int kCudaModuleAbi = 6;
/// Returns the compiler and version of this build; the module compares it with its own.
const char* cuda_module_build();
/// The C entry point. If it returns kOpen, the caller owns `*backend`; otherwise `error` contains a
/// sentence, null-terminated and truncated to error_size. Throws nothing.
enum class CudaModuleStatus : int {
  kOpen = 0,
  kMismatch = 1,
  kUnavailable = 2,
  kBusy = 3,
  kHost = 4,
};
using CudaModuleOpen = CudaModuleStatus(int abi, const char* build, int device, Backend** backend,
                                        char* error, size_t error_size);
constexpr const char* kCudaModuleEntry = "trainyard_cuda_open";

/// Returns <folder of the running program>/../lib/trainyard/libtrainyard_cuda.so, as in an
/// installation and in the build tree. The environment variable TRAINYARD_CUDA_MODULE, an absolute
/// path, replaces it.
std::filesystem::path cuda_module_path();

/// Returns the backend of GPU `device`, an ordinal among the GPUs that are visible to CUDA
/// (visible_gpus.h).
/// NOT_FOUND / CUDA_MODULE_MISSING: this installation has no module.
/// FAILED_PRECONDITION / CUDA_LIBRARY_MISSING: a CUDA library that it links is not there.
/// FAILED_PRECONDITION / CUDA_MODULE_MISMATCH: not a Trainyard module, or one of another build.
/// FAILED_PRECONDITION / HOST_FAULT: the driver or a service of this host does not work, or there
/// is no driver. The GPU may be intact. FAILED_PRECONDITION / CUDA_UNAVAILABLE: no such device, no
/// code for it, or it does not start. UNAVAILABLE / DEVICE_BUSY: another process uses it
/// exclusively; it may become free again.
Result<std::unique_ptr<Backend>> open_cuda_backend(const std::filesystem::path& module, int device);

}  // namespace trainyard
