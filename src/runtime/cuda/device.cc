#include "src/runtime/cuda/device.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "src/runtime/cuda/fault.h"

namespace trainyard::cuda {
namespace {

[[noreturn]] void fail(const std::string& what, int code, const std::string& words,
                       CudaFault fault) {
  throw CudaError(what + ": " + words + " (error " + std::to_string(code) + ")", code, fault);
}

Event make(unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return Event(event);
}

/// What the choice of an algorithm holds for: the GPU's model (a part of one has a name of its own)
/// and the libraries.
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

}  // namespace

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) fail(what, status, cudaGetErrorString(status), fault_of(status));
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(what, status, cublasLtGetStatusString(status), fault_of(status, cudaPeekAtLastError()));
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string words = cudnnGetErrorString(status);
  std::array<char, 512> detail{};  // the reason of the refusal, in more words than the status has
  cudnnGetLastErrorString(detail.data(), detail.size());
  if (detail[0] != '\0') words += ": " + std::string(detail.data());
  fail(what, status, words, fault_of(status, cudaPeekAtLastError()));
}

PinnedMemory make_pinned(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the next call must not find it
    throw std::bad_alloc();
  }
  check(status, "cudaMallocHost of " + std::to_string(bytes) + " bytes");
  return PinnedMemory(memory);
}

int device_count() {
  int count = 0;  // cudaGetDeviceCount leaves it untouched on an error
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);  // 0 if there is none
    (void)cudaRuntimeGetVersion(&runtime);
    const auto version = [](int v) {
      return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
    };
    throw CudaError(driver == 0 ? "no NVIDIA driver is loaded on this machine (error 35)"
                                : "the NVIDIA driver supports CUDA " + version(driver) +
                                      ", this build needs " + version(runtime) + " (error 35)",
                    status);
  }
  check(status, "looking for GPUs");
  return count;
}

Device::Device(int ordinal) : ordinal_(ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw CudaError("GPU " + std::to_string(ordinal) + " is not there: " + std::to_string(count) +
                        " visible (CUDA_VISIBLE_DEVICES may hide some)",
                    cudaErrorInvalidDevice);
  }
  make_current();
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

DeviceMemory Device::allocate(int64_t bytes) const {
  make_current();
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size);  // aligned to 256 bytes at least
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the next call must not find it
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
  if (algorithms_ == nullptr) return problem.take_first().has_value();
  return algorithms_->choose(class_, key, problem);
}

void Device::make_current() const { check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

void Device::synchronize() const {
  // Faults of kernels that ran before surface here.
  check(cudaStreamSynchronize(stream_.get()), "waiting for GPU " + std::to_string(ordinal_));
}

}  // namespace trainyard::cuda
