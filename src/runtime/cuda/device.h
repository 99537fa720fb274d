// src/runtime/cuda/device.h: one GPU as a worker process uses it: a stream and the library handles
// that run on it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "kernels/alignment.h"
#include "kernels/cuda/stream.h"
#include "src/base/handle.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::cuda {

/// Throw CudaError unless the call succeeded. `what` names the call and what it was for. Whose
/// fault a library's is, the state of the current device's context tells.
void check(cudaError_t status, const std::string& what);
void check(cublasStatus_t status, const std::string& what);
void check(cudnnStatus_t status, const std::string& what);

using Stream = Handle<CUstream_st, cudaStreamDestroy>;
using Event = Handle<CUevent_st, cudaEventDestroy>;
using DeviceMemory = Handle<void, cudaFree>;
using PinnedMemory = Handle<void, cudaFreeHost>;
using BlasLt = Handle<cublasLtContext, cublasLtDestroy>;
using Dnn = Handle<cudnnContext, cudnnDestroy>;

/// Bytes of a piece of a workspace, so that the next piece is aligned as the workspace is.
constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kCudaAlignment); }

/// Host memory that a GPU can copy to and from while both go on. Throws std::bad_alloc.
PinnedMemory make_pinned(int64_t bytes);

/// Number of GPUs that this process may use. Throws CudaError with a sentence about the driver
/// where CUDA is not usable: without a driver the code is 35 (insufficient driver), not 100 (no
/// device).
int device_count();
/// That sentence: CUDA versions as CUDA tells them (1000 * major + 10 * minor; 0: no driver), and
/// the driver's own version where it is known ("535.104.05").
std::string driver_refusal(int driver_cuda, int needed_cuda, const std::string& driver_version);

/// All work goes to one stream of its own, never to the default stream. Not thread-safe; usable
/// from any one thread at a time, because each entry makes the device current first.
class Device {
 public:
  /// Throws CudaError if the ordinal is not there, the build has no code for that GPU, or a library
  /// does not start.
  explicit Device(int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// The current device is a property of the calling thread; costs some ten nanoseconds when it is
  /// current already.
  void make_current() const;
  void synchronize() const;

  /// Throws std::bad_alloc where the device has no room, CudaError for every other failure.
  DeviceMemory allocate(int64_t bytes) const;
  /// Constants of a kernel, copied once when it is prepared.
  DeviceMemory upload(std::span<const std::byte> bytes) const;

  /// Creates a stream or an event of this device; time can be taken only between events of the
  /// second kind.
  static Stream make_stream();
  static Event make_event();
  static Event make_timed_event();

  /// From now on choose() looks there; before, it takes what the library proposes first.
  void use_algorithms(std::shared_ptr<Algorithms> algorithms);
  Algorithms* algorithms() const { return algorithms_.get(); }
  /// Makes an algorithm ready for the problem that `key` tells in full: everything that the choice
  /// depends on, apart from the class of the device. False where the library has none.
  bool choose(const std::string& key, const AlgorithmProblem& problem) const;

  int ordinal() const { return ordinal_; }
  int64_t memory_bytes() const { return memory_bytes_; }
  cudaStream_t stream() const { return stream_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }
  cudnnHandle_t dnn() const { return dnn_.get(); }

  /// What kernels of this device share as long as one of them lives, by a name of theirs.
  std::weak_ptr<const void>& shared(const std::string& name) const { return shared_[name]; }

 private:
  int ordinal_;
  int64_t memory_bytes_ = 0;
  Stream stream_;  // before the handles, so that it outlives them
  BlasLt blas_;
  Dnn dnn_;
  std::shared_ptr<Algorithms> algorithms_;
  std::string class_;  // where there are algorithms
  mutable std::map<std::string, std::weak_ptr<const void>> shared_;
};

}  // namespace trainyard::cuda
