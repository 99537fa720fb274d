// src/runtime/cuda_module.h: opens libtrainyard_cuda.so at run time.
//
// No program links a CUDA library: one package serves hosts with and without a GPU. The module
// links them, and trainyard-worker and `trainyard local` ask for it here. Each way in which it can
// be unusable is a refusal with a sentence, never a fault: a job that asked for `auto` then runs on
// the CPU and tells why.
//
// C++ objects cross the border, so the module and the program must come from the same build; the
// entry point checks it. The module is never unloaded: CUDA's libraries keep threads and exit
// handlers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// Rises when Backend, Kernel, KernelArgs or what they refer to changes shape.
constexpr int kCudaModuleAbi = 5;
/// Compiler and version of this build; the module compares it with its own.
const char* cuda_module_build();
/// The C entry point. `*backend` is the caller's if the answer is kOpen; else `error` holds a
/// sentence, terminated and cut to error_size. Nothing is thrown.
enum class CudaModuleAnswer : int { kOpen = 0, kMismatch = 1, kUnavailable = 2, kBusy = 3 };
using CudaModuleOpen = CudaModuleAnswer(int abi, const char* build, int device, Backend** backend,
                                        char* error, size_t error_size);
constexpr const char* kCudaModuleEntry = "trainyard_cuda_open";

/// <folder of the running program>/../lib/trainyard/libtrainyard_cuda.so: the layout of an
/// installation and of the build tree. TRAINYARD_CUDA_MODULE in the environment, an absolute path,
/// replaces it.
std::filesystem::path cuda_module_path();

/// The backend of GPU `device`, an ordinal among those that CUDA shows (visible_gpus.h).
/// NOT_FOUND / CUDA_MODULE_MISSING: this installation has no module.
/// FAILED_PRECONDITION / CUDA_LIBRARY_MISSING: a CUDA library that it links is not there.
/// FAILED_PRECONDITION / CUDA_MODULE_MISMATCH: not a Trainyard module, or one of another build.
/// FAILED_PRECONDITION / CUDA_UNAVAILABLE: no driver, no such device, or it does not start.
/// UNAVAILABLE / DEVICE_BUSY: another process has it for itself; it may be free again.
Result<std::unique_ptr<Backend>> open_cuda_backend(const std::filesystem::path& module, int device);

}  // namespace trainyard
