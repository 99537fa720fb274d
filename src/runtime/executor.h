// src/runtime/executor.h: a program bound to memory on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "src/plan/program.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// The one allocation of a job: [persistent | transient of the largest program | workspace], each
/// padded to the backend's alignment. Programs of a job run one after another and so share the
/// transient part.
class Arena {
 public:
  Arena(Backend& backend, int64_t persistent_bytes, int64_t transient_bytes,
        int64_t workspace_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* persistent() const { return base_; }
  std::byte* transient() const { return base_ + persistent_bytes_; }
  std::byte* workspace() const { return base_ + persistent_bytes_ + transient_bytes_; }
  int64_t size_bytes() const { return persistent_bytes_ + transient_bytes_ + workspace_bytes_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  Backend& backend_;
  int64_t persistent_bytes_;
  int64_t transient_bytes_;
  int64_t workspace_bytes_;
  std::byte* base_;
};

/// Host memory that a device copies to (Backend::allocate_host).
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

/// Memory of a device beside the arena, zeroed.
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

/// Kernels of a program, prepared but not yet bound: their workspace needs are known before the
/// arena is allocated.
class PreparedProgram {
 public:
  /// Faults if the program was compiled for a device that asks less of its memory.
  PreparedProgram(Program program, Backend& backend);
  const Program& program() const { return program_; }  // memory.workspace_bytes is filled
  int64_t workspace_bytes() const { return program_.memory.workspace_bytes; }

 private:
  friend class Executor;
  Program program_;
  Backend& backend_;
  /// By position in program.order. nullptr: the node runs in the kernel of one before it.
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

/// A computed value is NaN or infinite; says which node and tensor were first. Thrown only where
/// the check is on.
struct NumericsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a prepared program in an arena. No allocation and no shape logic after construction.
/// Kernels run with denormal numbers flushed (kernels/cpu/flush_denormals.h), on every backend of
/// the host; write() and read() copy bits.
/// With TRAINYARD_CHECK_NUMERICS=1 in the environment every node's outputs, and what it updates,
/// are read back and checked after it ran: slow, for finding where a NaN is born. It waits behind
/// each node then.
class Executor {
 public:
  Executor(PreparedProgram prepared, Arena& arena);

  const Program& program() const { return prepared_.program(); }
  /// Copies a tensor between the host (row-major, of its type however it is stored) and the device.
  /// `bytes` must be the size of its type; read() may begin at byte `offset` and read any part.
  /// What is stored in bf16 is computed, and cannot be written.
  void write(TensorId id, std::span<const std::byte> bytes);
  void read(TensorId id, std::span<std::byte> bytes) const;
  void read(TensorId id, std::span<std::byte> bytes, size_t offset) const;
  /// Where write() would put a tensor, and where begin_read() copies it from, for who does the
  /// same on the device.
  void* place_to_write(TensorId id) const;
  const void* place_to_read(TensorId id) const;
  /// In two parts, so that the device goes on meanwhile: begin_read() submits a copy of a tensor as
  /// it is stored to `host`, of stored_bytes(); when it has arrived, take() makes of it what read()
  /// gives. Of tensors that lie row-major.
  int64_t stored_bytes(TensorId id) const;
  void begin_read(TensorId id, std::byte* host) const;
  void take(TensorId id, const std::byte* host, std::span<std::byte> bytes) const;
  /// The first run submits the kernels one by one; from the second on they are replayed as a
  /// whole where the backend can record them.
  void run();
  /// Submits the kernels one by one, for who records several runs as one.
  void run_kernels();
  /// Whether run() waits behind each node, so that a kernel that faults on a GPU is named.
  void wait_behind_nodes(bool waits) { waits_behind_nodes_ = waits || checks_numerics_; }
  bool waits_behind_nodes() const { return waits_behind_nodes_; }
  /// Highest byte of the arena that any step was bound to, workspace included: what the plan is
  /// measured against.
  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* address(TensorId id) const;
  void copy_out(TensorId id, std::span<std::byte> bytes, size_t offset) const;
  void wait_for(size_t step) const;
  void check_numerics(size_t step) const;
  PreparedProgram prepared_;
  Arena& arena_;
  std::vector<KernelArgs> args_;
  std::unique_ptr<Recording> recording_;
  enum class Runs : uint8_t { kNone, kFirst, kMore } runs_ = Runs::kNone;
  int64_t used_bytes_ = 0;
  bool checks_numerics_ = false, waits_behind_nodes_ = false;
};

}  // namespace trainyard
