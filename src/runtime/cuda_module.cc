#include "src/runtime/cuda_module.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>
#include <system_error>

#include "src/runtime/cuda_error.h"

namespace trainyard {
namespace {

Error refuse(ErrorCode code, const char* reason, const std::filesystem::path& module,
             const std::string& sentence) {
  Error error = make_error(code, reason, sentence);
  error.metadata["module"] = module.string();
  return error;
}

std::string dl_reason() {
  const char* text = dlerror();  // dlerror() also clears the error
  return text != nullptr ? text : "no reason given";
}

}  // namespace

const char* cuda_module_build() { return TRAINYARD_VERSION " " __VERSION__; }

std::filesystem::path cuda_module_path() {
  if (const char* path = std::getenv("TRAINYARD_CUDA_MODULE"); path != nullptr && *path != '\0') {
    return path;
  }
  std::error_code ignored;  // without /proc, the relative path below is refused as missing
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / "../lib/trainyard/libtrainyard_cuda.so").lexically_normal();
}

Result<std::unique_ptr<Backend>> open_cuda_backend(const std::filesystem::path& module,
                                                   int device) {
  // A bare name would make dlopen search the library path, but only the named file is meant.
  if (!module.is_absolute()) {
    return refuse(ErrorCode::kInvalidArgument, "CUDA_MODULE_MISSING", module,
                  "the CUDA module's path " + module.string() + " is not absolute");
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(module, error)) {
    return refuse(ErrorCode::kNotFound, "CUDA_MODULE_MISSING", module,
                  "no CUDA module at " + module.string() +
                      ": this installation was built without CUDA and computes on the CPU");
  }
  void* const handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return refuse(ErrorCode::kFailedPrecondition, "CUDA_LIBRARY_MISSING", module,
                  "the CUDA module cannot be loaded: " + dl_reason() +
                      "; install the CUDA libraries that it names, or use the CPU");
  }
  auto* const open = reinterpret_cast<CudaModuleOpen*>(dlsym(handle, kCudaModuleEntry));
  if (open == nullptr) {
    return refuse(ErrorCode::kFailedPrecondition, "CUDA_MODULE_MISMATCH", module,
                  module.string() + " is not a Trainyard CUDA module: " + dl_reason());
  }
  std::array<char, 1024> text{};
  Backend* opened = nullptr;
  const CudaModuleStatus answer =
      open(kCudaModuleAbi, cuda_module_build(), device, &opened, text.data(), text.size());
  std::unique_ptr<Backend> backend(opened);
  if (answer == CudaModuleStatus::kOpen && backend != nullptr) return backend;
  if (answer == CudaModuleStatus::kBusy) {
    return refuse(ErrorCode::kUnavailable, kDeviceBusy, module, text.data());
  }
  if (answer == CudaModuleStatus::kHost) {
    return refuse(ErrorCode::kFailedPrecondition, kHostFault, module, text.data());
  }
  return refuse(ErrorCode::kFailedPrecondition,
                answer == CudaModuleStatus::kMismatch ? "CUDA_MODULE_MISMATCH" : "CUDA_UNAVAILABLE",
                module, text.data());
}

}  // namespace trainyard
