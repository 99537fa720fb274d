// src/runtime/executor.h: executes a program in device memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "src/plan/program.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// A job's single allocation: [persistent | transient part of the largest program | workspace],
/// each padded to the backend's alignment. The programs of a job run one after another and
/// therefore share the transient part. `mapped` is the file from which mapped parameters are read;
/// it must outlive the arena, and the backend must compute in host memory.
class Arena {
 public:
  Arena(Backend& backend, int64_t persistent_bytes, int64_t transient_bytes,
        int64_t workspace_bytes, std::span<const std::byte> mapped = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* persistent() const { return base_; }
  std::byte* transient() const { return base_ + persistent_bytes_; }
  std::byte* workspace() const { return base_ + persistent_bytes_ + transient_bytes_; }
  int64_t size_bytes() const { return persistent_bytes_ + transient_bytes_ + workspace_bytes_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::span<const std::byte> mapped() const { return mapped_; }

 private:
  Backend& backend_;
  std::span<const std::byte> mapped_;
  int64_t persistent_bytes_;
  int64_t transient_bytes_;
  int64_t workspace_bytes_;
  std::byte* base_;
};

/// Host memory to which a device copies (Backend::allocate_host()).
class HostBuffer {
 public:
  HostBuffer(Backend& backend, int64_t bytes)
      : backend_(backend), memory_(static_cast<std::byte*>(backend.allocate_host(bytes))) {}
  ~HostBuffer() { backend_.release_host(memory_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  std::byte* get() const { return memory_; }

 private:
  Backend& backend_;
  std::byte* memory_;
};

/// Zeroed device memory outside of the arena.
class DeviceBuffer {
 public:
  /// Throws std::bad_alloc.
  DeviceBuffer(Backend& backend, int64_t bytes)
      : backend_(backend), memory_(static_cast<std::byte*>(backend.allocate(bytes))) {}
  ~DeviceBuffer() { backend_.release(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  std::byte* get() const { return memory_; }

 private:
  Backend& backend_;
  std::byte* memory_;
};

/// The prepared kernels of a program, not yet bound to memory: their workspace sizes must be known
/// before the arena is allocated.
class PreparedProgram {
 public:
  /// Fails a check if the program was compiled for a device with a smaller alignment.
  PreparedProgram(Program program, Backend& backend);
  const Program& program() const { return program_; }  // memory.workspace_bytes is set
  int64_t workspace_bytes() const { return program_.memory.workspace_bytes; }

 private:
  friend class Executor;
  /// Returns the lane of each kernel, which joins if one of its nodes does.
  std::vector<LaneStep> lanes_of_kernels() const;
  bool is_aside(size_t kernel) const {
    return !lanes_.empty() && lanes_[kernel].lane == Lane::kSide;
  }
  Program program_;
  Backend& backend_;
  /// Indexed by position in program.order. nullptr: the node is part of an earlier node's kernel.
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<LaneStep> lanes_;  // by kernel; empty: one lane
  // Each lane has its own part of the workspace.
  int64_t main_workspace_bytes_ = 0;
};

/// A computed value is NaN or infinite; what() names the first such node and tensor. Thrown only if
/// the check is enabled.
struct NumericsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a prepared program in an arena. Mapped parameters cannot be written. Allocates nothing and
/// computes no shapes after construction. On every host backend, kernels run with denormal numbers
/// flushed to zero (kernels/cpu/flush_denormals.h); write() and read() copy bits. With the
/// environment variable TRAINYARD_CHECK_NUMERICS=1 every node's outputs and updated inputs are read
/// back and checked after it ran. This is slow; it is for finding the origin of a NaN. The executor
/// then waits after each node.
class Executor {
 public:
  Executor(PreparedProgram prepared, Arena& arena);

  const Program& program() const { return prepared_.program(); }
  /// Copies a tensor between the device and the host, where it is row-major and of its type,
  /// whatever its stored form. `bytes` must have the size of its type; with `offset`, in bytes of
  /// its type, they copy any part. Writing a parameter also writes its copy in 16 bits
  /// (Role::kCopy); one that is itself stored in 16 bits is rounded. Other tensors that are stored
  /// in 16 bits are intermediate results and cannot be written.
  void write(TensorId id, std::span<const std::byte> bytes);
  void write(TensorId id, std::span<const std::byte> bytes, size_t offset);
  void read(TensorId id, std::span<std::byte> bytes) const;
  void read(TensorId id, std::span<std::byte> bytes, size_t offset) const;
  /// Returns the device address to which write() copies a tensor, and from which begin_read()
  /// copies it, for callers that copy on the device.
  void* place_to_write(TensorId id) const;
  const void* place_to_read(TensorId id) const;
  /// These read a tensor in two parts, so that the device can continue in between. begin_read()
  /// submits a copy of the tensor in its stored form to `host`, of stored_bytes(); after it has
  /// arrived, take() converts it to the result of read(). Only for tensors that are stored
  /// row-major.
  int64_t stored_bytes(TensorId id) const;
  void begin_read(TensorId id, std::byte* host) const;
  void take(TensorId id, const std::byte* host, std::span<std::byte> bytes) const;
  /// Runs the program. The first run submits the kernels one by one; the second records them and
  /// later ones replay the recording, if the backend can record.
  void run();
  /// Submits the kernels one by one, for callers that record several runs as one.
  void run_kernels();
  /// Sets whether run() waits after each node, so that a fault on a GPU can be attributed to its
  /// kernel.
  void wait_after_nodes(bool waits) { waits_after_nodes_ = waits || checks_numerics_; }
  bool waits_behind_nodes() const { return waits_after_nodes_; }
  /// Returns the highest byte of the arena that any step uses, workspace included; compared with
  /// the plan.
  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* address(TensorId id) const;
  void write_stored(TensorId id, std::span<const std::byte> bytes, size_t offset = 0);
  void write_narrow(TensorId id, std::span<const std::byte> floats, size_t offset);
  void enter_lane(size_t step);
  void copy_out(TensorId id, std::span<std::byte> bytes, size_t offset) const;
  void wait_for(size_t step) const;
  void check_numerics(size_t step) const;
  PreparedProgram prepared_;
  Arena& arena_;
  std::vector<KernelArgs> args_;
  std::map<TensorId, TensorId> copies_;  // by parameter
  std::unique_ptr<Recording> recording_;
  enum class Runs : uint8_t { kNone, kFirst, kMore } runs_ = Runs::kNone;
  int64_t used_bytes_ = 0;
  bool checks_numerics_ = false, waits_after_nodes_ = false;
};

}  // namespace trainyard
