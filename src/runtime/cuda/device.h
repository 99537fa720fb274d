// src/runtime/cuda/device.h: one GPU of a worker process: its stream and the handles of libraries
// that use the stream.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/alignment.h"
#include "kernels/cuda/stream.h"
#include "src/base/cores.h"
#include "src/base/handle.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::cuda {

/// Throw CudaError unless the call succeeded. `what` names the call and its purpose. The cause of a
/// library's error is derived from the state of the current device's context.
void check(cudaError_t status, const std::string& what);
void check(cublasStatus_t status, const std::string& what);
void check(cudnnStatus_t status, const std::string& what);

using Stream = Handle<CUstream_st, cudaStreamDestroy>;
using Event = Handle<CUevent_st, cudaEventDestroy>;
using DeviceMemory = Handle<void, cudaFree>;
using PinnedMemory = Handle<void, cudaFreeHost>;
using BlasLt = Handle<cublasLtContext, cublasLtDestroy>;
using Dnn = Handle<cudnnContext, cudnnDestroy>;

/// Rounds up the size of a part of a workspace, so that the next part is as aligned as the
/// workspace.
constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kCudaAlignment); }

/// Pinned host memory, for copies that run concurrently with the host and the GPU. Throws
/// std::bad_alloc.
PinnedMemory make_pinned(int64_t bytes);

/// Returns the number of GPUs that this process may use. Throws CudaError with a message about the
/// driver if CUDA is not usable; without a driver the code is 35 (insufficient driver), not 100 (no
/// device).
int device_count();
/// Returns the message of that error. Versions of CUDA are given as by the CUDA API (1000 * major +
/// 10 * minor; 0: no driver); the driver's own version is empty if it is not known ("535.104.05").
std::string driver_refusal(int driver_cuda, int needed_cuda, const std::string& driver_version);

/// Whether a thread that waits for a GPU sleeps until an interrupt. Otherwise it polls, which
/// notices the end some microseconds sooner but keeps a core busy. `ranks` is the number of GPUs
/// that this process uses, each with a waiting thread, so that at least as many cores are left for
/// the loader's threads.
constexpr bool sleeps_while_waiting(int cores, int ranks) { return cores <= 2 * ranks; }

/// All work uses one own stream, never the default stream. Not thread-safe; any thread may use it,
/// one at a time, because each entry point makes the device current first.
class Device {
 public:
  /// Throws CudaError if there is no GPU with this ordinal, the build has no code for it, or a
  /// library does not start. `cores` is the number of cores that this process may use.
  explicit Device(int ordinal, int cores = usable_cores());
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Makes this the calling thread's current device; takes about ten nanoseconds if it already is.
  void make_current() const;
  void synchronize() const;

  /// Throws std::bad_alloc if the device is out of memory, CudaError for all other failures.
  DeviceMemory allocate(int64_t bytes) const;
  /// Copies a kernel's constants to the device, once when the kernel is prepared.
  DeviceMemory upload(std::span<const std::byte> bytes) const;

  /// Create a stream or an event of this device. Only events of make_timed_event() can measure
  /// time. The host may wait only for events of make_host_event(): for others it would poll, even
  /// if sleeps_while_waiting().
  static Stream make_stream();
  static Event make_event();
  static Event make_timed_event();
  Event make_host_event() const;

  /// Makes choose() use `algorithms`; without it, choose() uses the library's first proposal.
  void use_algorithms(std::shared_ptr<Algorithms> algorithms);
  Algorithms* algorithms() const { return algorithms_.get(); }
  /// Selects an algorithm for a problem. `key` must contain everything on which the choice depends,
  /// except the device class. False if the library has no algorithm.
  bool choose(const std::string& key, const AlgorithmProblem& problem) const;
  /// Returns what choose() has selected since the last call, such as "matmul sizes=...: cublaslt
  /// ...".
  std::vector<std::string> take_selected() const { return std::exchange(selected_, {}); }

  int ordinal() const { return ordinal_; }
  int64_t memory_bytes() const { return memory_bytes_; }
  /// Returns whether the hardware has bfloat16, and whether products may round F32 operands to
  /// TF32: GPUs of compute capability 8.0 or later have both.
  bool has_bf16() const { return capability_ >= 80; }
  bool has_tf32() const { return capability_ >= 80; }
  /// Returns the compute capability as in 90 for 9.0.
  int capability() const { return capability_; }
  cudaStream_t stream() const { return stream_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }
  cudnnHandle_t dnn() const { return dnn_.get(); }

  /// Data that kernels of this device share while any of them exists, by a name that they choose.
  std::weak_ptr<const void>& shared(const std::string& name) const { return shared_[name]; }
  /// Returns the result of `test`, which is called only once for each name on this device.
  bool test_once(const std::string& name, const std::function<bool()>& test) const;

 private:
  int ordinal_;
  bool sleeps_;  // while a thread waits for the device
  int64_t memory_bytes_ = 0;
  int capability_ = 0;
  Stream stream_;  // declared before the handles, so that it outlives them
  BlasLt blas_;
  Dnn dnn_;
  std::shared_ptr<Algorithms> algorithms_;
  mutable std::vector<std::string> selected_;  // since take_selected()
  std::string class_;                          // device class; set by use_algorithms()
  mutable std::map<std::string, std::weak_ptr<const void>> shared_;
  mutable std::map<std::string, bool> tested_;  // results by name
};

}  // namespace trainyard::cuda
