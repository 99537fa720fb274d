#include "src/runtime/cuda/device.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "kernels/cuda/built_for.h"
#include "src/runtime/cuda/fault.h"
#include "src/runtime/nvml.h"

namespace trainyard::cuda {
namespace {

[[noreturn]] void fail(const std::string& what, int code, const std::string& words,
                       CudaFault fault) {
  throw CudaError(what + ": " + words + " (error " + std::to_string(code) + ")", code, fault);
}

[[noreturn]] void fail(const std::string& what, cudaError_t status, CudaFault fault) {
  const std::string text =
      what + ": " + cudaGetErrorString(status) + " (error " + std::to_string(status) + ")";
  throw CudaError(fault == CudaFault::kHost ? text + "; " + host_remedy(status) : text, status,
                  fault);
}

/// Like check(), for the calls with which a process starts to use CUDA.
void check_start(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) fail(what, status, start_fault_of(status));
}

Event make(unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return Event(event);
}

/// Returns the device class for which choices of algorithms are valid: the GPU's model (MIG
/// instances have their own names) and the versions of the libraries.
std::string class_of(int ordinal) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::string text = properties.name;
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text + ", compute capability " + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors, cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", cuDNN " +
         std::to_string(cudnnGetVersion());
}

/// Describes the error of the CUDA context, to be appended to a library's message; empty if there
/// is none.
std::string words_of(cudaError_t context) {
  if (context == cudaSuccess) return "";
  return std::string("; CUDA reports: ") + cudaGetErrorString(context) + " (error " +
         std::to_string(context) + ")";
}

/// The oldest GPUs that the kernels and the toolkit support, in the form of
/// TRAINYARD_CUDA_ARCHITECTURES.
constexpr int kOldestArchitecture = 75;

/// If the driver cannot run the module's kernels, the first launch would only report "no kernel
/// image is available" (error 209).
void check_architecture(const cudaDeviceProp& properties) {
  const cudaError_t status = kernels::cuda::check_device_code();
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction &&
      status != cudaErrorUnsupportedPtxVersion) {
    check(status, "loading the kernels");
  }
  const int architecture = 10 * properties.major + properties.minor;
  throw CudaError(
      std::string("the CUDA module has no code for this GPU: it is built for compute "
                  "capability ") +
          kernels::cuda::built_for() + ", and " + properties.name + " has " +
          std::to_string(properties.major) + "." + std::to_string(properties.minor) + " (error " +
          std::to_string(status) + "); " +
          (architecture < kOldestArchitecture
               ? "Trainyard supports GPUs of compute capability 7.5 or later"
               : "install a build for it, or build with -DTRAINYARD_CUDA_ARCHITECTURES=" +
                     std::to_string(architecture)),
      status, CudaFault::kProgram);
}

}  // namespace

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) fail(what, status, fault_of(status));
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const cudaError_t context = context_state();
  fail(what, status, cublasLtGetStatusString(status) + words_of(context),
       fault_of(status, context));
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string words = cudnnGetErrorString(status);
  std::array<char, 512> detail{};  // cuDNN's detailed reason
  cudnnGetLastErrorString(detail.data(), detail.size());
  if (detail[0] != '\0') words += ": " + std::string(detail.data());
  const cudaError_t context = context_state();
  fail(what, status, words + words_of(context), fault_of(status, context));
}

PinnedMemory make_pinned(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the error is not sticky, but must be cleared for the next call
    throw std::bad_alloc();
  }
  check(status, "cudaMallocHost of " + std::to_string(bytes) + " bytes");
  return PinnedMemory(memory);
}

std::string driver_refusal(int driver_cuda, int needed_cuda, const std::string& driver_version) {
  if (driver_cuda == 0) return "no NVIDIA driver is loaded on this machine";
  const auto version = [](int v) {
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  };
  // The first driver of each major CUDA version supports all its minor versions. Source: CUDA
  // Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
  // Compatibility".
  const int major = needed_cuda / 1000;
  const char* const least = major == 12 ? "525" : major == 13 ? "580" : nullptr;
  std::string text = "the NVIDIA driver";
  if (!driver_version.empty()) text += " " + driver_version;
  text +=
      " supports CUDA " + version(driver_cuda) + ", this build needs CUDA " + version(needed_cuda);
  if (least != nullptr) text += std::string(": install driver ") + least + " or later";
  return text;
}

int device_count() {
  int count = 0;  // cudaGetDeviceCount does not set it on an error
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);  // 0 if there is no driver
    (void)cudaRuntimeGetVersion(&runtime);
    const auto nvml = Nvml::load(kNvmlLibrary);
    throw CudaError(
        driver_refusal(driver, runtime, nvml.ok() ? (*nvml)->driver_version() : "") + " (error 35)",
        status, CudaFault::kHost);
  }
  check_start(status, "looking for GPUs");
  return count;
}

Device::Device(int ordinal, int cores) : ordinal_(ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw CudaError("GPU " + std::to_string(ordinal) + " is not available: " +
                        std::to_string(count) + " visible (CUDA_VISIBLE_DEVICES may hide some)",
                    cudaErrorInvalidDevice);
  }
  // The process sees only the GPUs of its job (visible_gpus.h). How threads wait is a property of
  // the context, so it is set when the context is made; cudaSetDevice() alone would make one that
  // polls.
  sleeps_ = sleeps_while_waiting(cores, count);
  check_start(
      cudaInitDevice(ordinal, sleeps_ ? cudaDeviceScheduleBlockingSync : cudaDeviceScheduleAuto,
                     cudaInitDeviceFlagsAreValid),
      "starting GPU " + std::to_string(ordinal));
  make_current();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  memory_bytes_ = static_cast<int64_t>(properties.totalGlobalMem);
  capability_ = 10 * properties.major + properties.minor;
  check_architecture(properties);
  stream_ = make_stream();
  cublasLtHandle_t blas = nullptr;
  check(cublasLtCreate(&blas), "cublasLtCreate");
  blas_.reset(blas);
  cudnnHandle_t dnn = nullptr;
  check(cudnnCreate(&dnn), "cudnnCreate");
  dnn_.reset(dnn);
  check(cudnnSetStream(dnn_.get(), stream_.get()), "cudnnSetStream");
}

Stream Device::make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(stream);
}

Event Device::make_event() { return make(cudaEventDisableTiming); }

Event Device::make_timed_event() { return make(cudaEventDefault); }

Event Device::make_host_event() const {
  return make(cudaEventDisableTiming | (sleeps_ ? cudaEventBlockingSync : cudaEventDefault));
}

DeviceMemory Device::allocate(int64_t bytes) const {
  make_current();
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size);  // aligned to at least 256 bytes
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the error is not sticky, but must be cleared for the next call
    throw std::bad_alloc();
  }
  check(status, "cudaMalloc of " + std::to_string(size) + " bytes");
  return DeviceMemory(memory);
}

DeviceMemory Device::upload(std::span<const std::byte> bytes) const {
  DeviceMemory memory = allocate(static_cast<int64_t>(bytes.size()));
  check(cudaMemcpyAsync(memory.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream()),
        "copying a kernel's constants");
  synchronize();
  return memory;
}

void Device::use_algorithms(std::shared_ptr<Algorithms> algorithms) {
  class_ = class_of(ordinal_);
  algorithms_ = std::move(algorithms);
}

bool Device::choose(const std::string& key, const AlgorithmProblem& problem) const {
  // take() may be called for several choices; the last one that it accepts is in use.
  std::string selected;
  AlgorithmProblem noted = problem;
  noted.take = [&](const std::string& choice) {
    const bool is_taken = problem.take(choice);
    if (is_taken) selected = choice;
    return is_taken;
  };
  noted.take_first = [&] {
    const std::optional<std::string> first = problem.take_first();
    if (first.has_value()) selected = *first;
    return first;
  };
  const bool is_chosen = algorithms_ == nullptr ? noted.take_first().has_value()
                                                : algorithms_->choose(class_, key, noted);
  if (is_chosen) selected_.push_back(key + ": " + selected);
  return is_chosen;
}

bool Device::test_once(const std::string& name, const std::function<bool()>& test) const {
  if (const auto it = tested_.find(name); it != tested_.end()) return it->second;
  return tested_[name] = test();
}

void Device::make_current() const { check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

void Device::synchronize() const {
  // Faults of earlier kernels are reported here.
  check(cudaStreamSynchronize(stream_.get()), "waiting for GPU " + std::to_string(ordinal_));
}

}  // namespace trainyard::cuda
