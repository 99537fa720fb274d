// src/runtime/backend.h: the interface of a device that runs programs. The reference and cpu
// backends are linked in; the cuda backend is in libtrainyard_cuda.so, which is loaded at run time
// (src/runtime/cuda_module.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/copy_pieces.h"
#include "src/graph/graph.h"
#include "src/graph/op.h"
#include "src/plan/device_traits.h"
#include "src/plan/lanes.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/communicator.h"
#include "src/runtime/device_peak.h"

namespace trainyard {

namespace kernels {
struct ResidentRows;  // defined in kernels/resident_rows.h
struct ResidentSample;
}  // namespace kernels

/// The pointers of one step of a program, bound once, since tensors never move. A tensor that is
/// left out is nullptr. All other pointers, and the workspace, are multiples of
/// Backend::alignment(). A kernel that divides the workspace rounds each part up to that
/// (kernels/alignment.h).
struct KernelArgs {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<void*> mutated;  // the inputs that the op updates, in mutated_inputs() order
  void* workspace = nullptr;   // at least workspace_bytes(), with undefined content

  template <typename T>
  const T* in(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* out(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
  template <typename T>
  T* mut(size_t i) const {
    return static_cast<T*>(mutated[i]);
  }
};

/// One step of a program, prepared once per job: the constructor creates descriptors and primitives
/// and chooses the algorithm; run() only computes. Not thread-safe.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t workspace_bytes() const { return 0; }
  /// Returns true if the kernel reads and writes tensors in their stored type. Otherwise it gets
  /// F32 tensors only, and a host backend converts before and after it (half_kernel.h).
  virtual bool accepts_stored_types() const { return false; }
  virtual void run(const KernelArgs& args) = 0;
};

/// Bytes on the host, and their destination on the device. `device` is a multiple of 4 bytes, and
/// the destination has room up to the next multiple of 4 after the last byte.
struct HostPiece {
  void* device = nullptr;
  const void* host = nullptr;
  int64_t bytes = 0;
};

/// Kernels that were submitted once and can be submitted again as a whole, with the same arguments.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

/// Measures points in time between kernels, with the clock of the computing device.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Marks the point after all work submitted so far.
  virtual void mark() = 0;
  /// Waits for the points since the last take(), and returns each in seconds since the first of
  /// them.
  virtual std::vector<double> take() = 0;
};

/// Describes one of the processes that train a job together, for its backends (join.h). It has only
/// numbers and texts, because the CUDA module has no connections of its own.
struct ProcessGroup {
  std::shared_ptr<Peers> peers;  // for Communicator::peers()
  int64_t first_rank = 0;        // the first rank of this process
  int64_t ranks = 1;             // number of ranks of all processes
  std::string address;           // numeric address at which the other processes reach this one
  std::string id;                // the result of prepare_join() in the first process
  std::chrono::milliseconds limit{60'000};  // time until all devices must be connected
  std::stop_token stop;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda"
  virtual Processor processor() const { return Processor::kCpu; }
  virtual bool has_kernel(std::string_view op_type) const = 0;
  /// Returns a sentence that describes what this machine lacks for full speed; empty if it lacks
  /// nothing.
  virtual std::string warning() const { return {}; }
  /// The backend must have a kernel for the op, else a check fails: callers check has_kernel() when
  /// they plan.
  virtual std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) = 0;
  /// Prepares consecutive updates, or casts, of one op type as one kernel. None of the nodes may
  /// use what another writes. The kernel's arguments are those of all nodes, concatenated. nullptr
  /// if the backend gains nothing by it; then each node is prepared separately.
  virtual std::unique_ptr<Kernel> prepare_group(const Graph& /*graph*/,
                                                std::span<const NodeId> /*nodes*/) {
    return nullptr;
  }
  /// Records the kernels that `submit` runs, without running them. Every kernel must have run
  /// before, so that none has setup work left. nullptr if the backend gains nothing by it. `submit`
  /// may be called twice.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& /*submit*/) {
    return nullptr;
  }

  /// In a recording, makes all that is submitted from now on part of `lane`: it starts after
  /// everything that was submitted to this lane before, and if `waits_for_all`, after everything
  /// submitted so far. A recording begins in the main lane. No effect without a recording, where
  /// everything runs in the order of submission.
  virtual void enter_lane(Lane /*lane*/, bool /*waits_for_all*/) {}

  /// Sets the object that chooses and records the algorithms of kernels prepared from now on.
  /// Without it, and in backends that choose nothing, a library's first proposal is used.
  virtual void use_algorithms(std::shared_ptr<Algorithms> /*algorithms*/) {}
  /// Returns the object given to use_algorithms(); nullptr if there is none.
  virtual Algorithms* algorithms() const { return nullptr; }

  /// Returns the alignment in bytes that kernels and their libraries require for each tensor and
  /// the workspace. Programs are compiled for it (CompileOptions::alignment).
  virtual int64_t alignment() const = 0;
  /// Returns the device's properties that programs are compiled for.
  DeviceTraits traits() const { return {alignment(), processor(), has_bf16()}; }
  /// Returns whether the device computes with tensors that are stored in bfloat16.
  virtual bool has_bf16() const { return true; }
  /// Allocates zeroed device memory, aligned to alignment(). Throws std::bad_alloc.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  /// Copies pieces that are needed together, in fewer copies if the backend can.
  virtual void copy_block_to_device(std::span<const HostPiece> pieces) {
    for (const HostPiece& p : pieces) copy_to_device(p.device, p.host, p.bytes);
  }
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  /// Returns whether the device's memory is that of the host, which may then read it in place.
  virtual bool computes_in_host_memory() const { return false; }
  /// Waits until all submitted work is done.
  virtual void synchronize() = 0;

  /// Returns whether gather_rows() and copy_pieces() are implemented. Then a dataset may be
  /// resident in the device's memory, and batches are gathered there.
  virtual bool supports_resident_rows() const { return false; }
  /// Submits the gathering of a batch (kernels/resident_rows.h), together with at most
  /// kernels::kCopyPiecesMax copies. All pointers, also those in `resident`, are device pointers.
  virtual void gather_rows(const kernels::ResidentRows& resident,
                           const kernels::ResidentSample* samples, int64_t count, void* x,
                           void* target, std::span<const kernels::CopyPiece> copies);
  /// Submits copies within the device.
  virtual void copy_pieces(std::span<const kernels::CopyPiece> pieces);

  /// Returns whether kernels run asynchronously after their submission. Then the next step is
  /// submitted before the results of the current one are read.
  virtual bool runs_ahead() const { return false; }
  /// Returns a stopwatch for kernels that are submitted one by one; it must not be used during a
  /// recording.
  virtual std::unique_ptr<Stopwatch> make_stopwatch();
  /// Returns the peak rates; if they are measured, the first call takes a moment.
  virtual DevicePeak peak() const { return {}; }

  /// Allocates host memory for begin_copy_to_host(), aligned to kHostAlignment. Throws
  /// std::bad_alloc.
  virtual void* allocate_host(int64_t bytes);
  virtual void release_host(void* memory) noexcept;
  /// Submits a copy after all work so far. `host`, from allocate_host(), contains the bytes once a
  /// later mark() has been waited for.
  virtual void begin_copy_to_host(void* host, const void* device, int64_t bytes) {
    copy_to_host(host, device, bytes);
  }
  /// mark() marks the point after all work submitted so far, and wait() waits for it. At most
  /// kMarks marks may be pending.
  static constexpr int64_t kMarks = 4;
  virtual int64_t mark() { return 0; }
  virtual void wait(int64_t /*mark*/) {}

  /// Connects the backends of a job's ranks, which are all of this backend's kind and include it as
  /// the first. Kernels prepared from now on may exchange data between them, and each backend must
  /// run on its own thread. FAILED_PRECONDITION if a requirement is missing.
  virtual Status connect(std::span<Backend* const> ranks);
  /// Prepares join() on this host. In the first process it returns an ID by which the devices of
  /// all processes find each other, valid for one join(). Empty if the backend needs none.
  virtual Result<std::string> prepare_join(const ProcessGroup& /*group*/) { return std::string(); }
  /// Like connect(), among several processes. Each calls it with its ranks, the same number in all
  /// processes. FAILED_PRECONDITION if the devices cannot be joined; UNAVAILABLE/RANKS_UNCONNECTED
  /// or DEADLINE_EXCEEDED/RANKS_MISSING if they do not find each other; CANCELLED/STOPPED.
  virtual Status join(std::span<Backend* const> ranks, const ProcessGroup& group);
  /// Returns this backend's end of the connection; nullptr before connect() or join().
  virtual Communicator* communicator() { return nullptr; }
};

/// `threads` is the number of threads that every kernel uses. It is recorded with the job, because
/// results are bit-identical only for equal thread counts.
std::unique_ptr<Backend> make_reference_backend();
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace trainyard
