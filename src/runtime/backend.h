// src/runtime/backend.h: a device that runs programs. reference and cpu are linked in; cuda is
// libtrainyard_cuda.so, opened at run time (src/runtime/cuda_module.h).
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
#include "src/runtime/algorithms.h"
#include "src/runtime/communicator.h"

namespace trainyard {

namespace kernels {
struct HeldRows;  // kernels/held_rows.h
struct HeldSample;
}  // namespace kernels

/// Pointers of one step, bound once: placements never move. A left-out tensor is nullptr. Every
/// other one, and the workspace, is a multiple of Backend::alignment(); a kernel that cuts the
/// workspace into pieces rounds each up to that (kernels/alignment.h).
struct KernelArgs {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<void*> mutated;  // the inputs that the op updates, in mutated_inputs() order
  void* workspace = nullptr;   // at least workspace_bytes(), whose content nobody knows

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

/// One step, prepared once per job: descriptors, primitives and algorithm choice are made in the
/// constructor, run() only computes. Not thread-safe.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t workspace_bytes() const { return 0; }
  /// True: it reads and writes its tensors as they are stored. Others are handed F32 alone; a host
  /// backend converts around them (half_kernel.h).
  virtual bool takes_stored() const { return false; }
  virtual void run(const KernelArgs& args) = 0;
};

/// Bytes on the host, and where they go on the device: to a multiple of 4 bytes, with room up to
/// the next one behind the last.
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

/// Points of time between kernels, by the clock of what computes.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// A point behind the work that was submitted so far.
  virtual void mark() = 0;
  /// Waits for the points since the last take(), and gives each in seconds since the first of them.
  virtual std::vector<double> take() = 0;
};

/// What a device can do at most, per second. 0: not known.
struct DevicePeak {
  double f32_flops = 0;   // a multiply-add is two
  double half_flops = 0;  // products of 16-bit numbers with F32 sums
  double bytes = 0;       // to and from its memory
  std::string source;     // where the numbers are from: "measured with 2 threads"
};

/// One of the processes that train a job together, as its backends are told (join.h): numbers and
/// words alone, because the CUDA module has no connections of its own.
struct ProcessGroup {
  std::shared_ptr<Peers> peers;             // for Communicator::peers()
  int64_t first_rank = 0;                   // of this process's
  int64_t ranks = 1;                        // of all processes
  std::string address;                      // numeric: where the other processes reach this one
  std::string id;                           // what prepare_join() gave to the first process
  std::chrono::milliseconds limit{60'000};  // until all devices are connected
  std::stop_token stop;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda"
  virtual Processor processor() const { return Processor::kCpu; }
  virtual bool has_kernel(std::string_view op_type) const = 0;
  /// A sentence about what this machine lacks, so that the backend works worse than it could; empty
  /// if it lacks nothing.
  virtual std::string warning() const { return {}; }
  /// A fault if the backend has no kernel for the op: plan() of the model has asked has_kernel.
  virtual std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) = 0;
  /// Updates, or casts, of one op type that follow one another, none of which touches what another
  /// writes, as one kernel: its arguments are theirs, one node's behind the other's. nullptr: the
  /// backend gains nothing by it, and each is prepared by itself.
  virtual std::unique_ptr<Kernel> prepare_group(const Graph& /*graph*/,
                                                std::span<const NodeId> /*nodes*/) {
    return nullptr;
  }
  /// Records what `submit` runs, without running it. Every kernel has run before, so that none has
  /// anything left to set up. nullptr: the backend gains nothing by it.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& /*submit*/) {
    return nullptr;
  }

  /// Where the algorithms of what is prepared from now on are chosen and recorded. Without it, and
  /// in backends that choose nothing, a library's first proposal is taken.
  virtual void use_algorithms(std::shared_ptr<Algorithms> /*algorithms*/) {}
  /// What was given; nullptr where nothing is chosen.
  virtual Algorithms* algorithms() const { return nullptr; }

  /// What kernels and their libraries ask of the address of each tensor and of a workspace: a
  /// multiple of so many bytes. Programs are compiled for it (CompileOptions::alignment).
  virtual int64_t alignment() const = 0;
  /// What programs for it are compiled for.
  DeviceTraits traits() const { return {alignment(), processor()}; }
  /// Device memory, zeroed, at a multiple of alignment(). Throws std::bad_alloc.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  /// Pieces that are needed together, one behind the other, in fewer copies where the backend can.
  virtual void copy_block_to_device(std::span<const HostPiece> pieces) {
    for (const HostPiece& p : pieces) copy_to_device(p.device, p.host, p.bytes);
  }
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  /// Waits until all submitted work is done.
  virtual void synchronize() = 0;

  /// True where gather_rows() and copy_pieces() are there: a dataset's rows may lie in the device's
  /// memory, and batches are made of them there.
  virtual bool holds_rows() const { return false; }
  /// Submits it, and at most kernels::kCopyPiecesMax copies beside. All pointers, and those in
  /// `held`, are the device's.
  virtual void gather_rows(const kernels::HeldRows& held, const kernels::HeldSample* samples,
                           int64_t count, void* x, void* target,
                           std::span<const kernels::CopyPiece> copies);
  /// Those alone.
  virtual void copy_pieces(std::span<const kernels::CopyPiece> pieces);

  /// True where work goes on after it was submitted. Then the next step is submitted before the
  /// results of this one are looked at.
  virtual bool runs_ahead() const { return false; }
  /// Around kernels that are submitted one by one, never while some are recorded.
  virtual std::unique_ptr<Stopwatch> make_stopwatch();
  /// May take a moment, where it is measured.
  virtual DevicePeak peak() const { return {}; }

  /// Host memory for begin_copy_to_host(), at a multiple of kHostAlignment. Throws std::bad_alloc.
  virtual void* allocate_host(int64_t bytes);
  virtual void release_host(void* memory) noexcept;
  /// Submits a copy behind the work so far. `host`, of allocate_host(), has the bytes once a mark()
  /// that was made later has been waited for.
  virtual void begin_copy_to_host(void* host, const void* device, int64_t bytes) {
    copy_to_host(host, device, bytes);
  }
  /// A place behind the work so far, and waiting for it. At most kMarks are waited for at a time.
  static constexpr int64_t kMarks = 4;
  virtual int64_t mark() { return 0; }
  virtual void wait(int64_t /*mark*/) {}

  /// Connects the backends of a job's ranks, all of this one's kind, of which this is the first:
  /// what is prepared from now on may exchange among them, and each runs on a thread of its own.
  /// FAILED_PRECONDITION where something that this needs is not there.
  virtual Status connect(std::span<Backend* const> ranks);
  /// What join() needs on this host, and, in the first process, words by which the devices of all
  /// processes find each other; good for one join(). Empty where it takes none.
  virtual Result<std::string> prepare_join(const ProcessGroup& /*group*/) { return std::string(); }
  /// The same among several processes, each of which calls it with its ranks, as many as the others
  /// have. FAILED_PRECONDITION where the devices cannot; UNAVAILABLE/RANKS_UNCONNECTED and
  /// DEADLINE_EXCEEDED/RANKS_MISSING where they do not find each other; CANCELLED/STOPPED.
  virtual Status join(std::span<Backend* const> ranks, const ProcessGroup& group);
  /// Its end of that; nullptr before.
  virtual Communicator* communicator() { return nullptr; }
};

/// `threads` is the size of the team that every kernel uses; it is recorded with the job, because
/// results are bit-identical only for equal thread counts.
std::unique_ptr<Backend> make_reference_backend();
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace trainyard
