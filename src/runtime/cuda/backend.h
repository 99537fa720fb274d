// src/runtime/cuda/backend.h: the `cuda` backend.
//
// Which ops it has is what its tables list (kernels.h): has_kernel() answers from them, so that a
// model with another op can be planned onto the CPU.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/runtime/backend.h"
#include "src/runtime/common/kernel_table.h"
#include "src/runtime/cuda/communicator.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/staging.h"

namespace trainyard::cuda {

class CudaBackend final : public Backend {
 public:
  /// Throws CudaError where the GPU cannot be used.
  explicit CudaBackend(int ordinal);

  std::string_view name() const override { return "cuda"; }
  Processor processor() const override { return Processor::kGpu; }
  std::string warning() const override { return warning_; }
  bool has_kernel(std::string_view op_type) const override;
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  std::unique_ptr<Kernel> prepare_group(const Graph& graph, std::span<const NodeId> nodes) override;
  /// A CUDA graph.
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override;

  int64_t alignment() const override { return kCudaAlignment; }
  void* allocate(int64_t bytes) override;
  void release(void* memory) noexcept override;
  /// Through pinned memory; the GPU need not be done with what came before.
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  /// As many pieces as fit into a slot of the staging in one copy and one launch.
  void copy_block_to_device(std::span<const HostPiece> pieces) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void synchronize() override;

  bool holds_rows() const override { return true; }
  void gather_rows(const kernels::HeldRows& held, const kernels::HeldSample* samples, int64_t count,
                   void* x, void* target, std::span<const kernels::CopyPiece> copies) override;
  void copy_pieces(std::span<const kernels::CopyPiece> pieces) override;

  /// Events on the stream.
  std::unique_ptr<Stopwatch> make_stopwatch() override;
  DevicePeak peak() const override;

  bool runs_ahead() const override { return true; }
  void* allocate_host(int64_t bytes) override;  // pinned
  void release_host(void* memory) noexcept override;
  void begin_copy_to_host(void* host, const void* device, int64_t bytes) override;
  int64_t mark() override;
  void wait(int64_t mark) override;

  void use_algorithms(std::shared_ptr<Algorithms> algorithms) override {
    device_.use_algorithms(std::move(algorithms));
  }
  Algorithms* algorithms() const override { return device_.algorithms(); }

  /// By NCCL, which must be installed for it.
  Status connect(std::span<Backend* const> ranks) override;
  Result<std::string> prepare_join(const ProcessGroup& group) override;
  Status join(std::span<Backend* const> ranks, const ProcessGroup& group) override;
  Communicator* communicator() override { return communicator_.get(); }

 private:
  Staging& staging();
  static std::vector<const Device*> devices_of(std::span<Backend* const> ranks);
  static void take(std::span<Backend* const> ranks,
                   std::vector<std::unique_ptr<NcclCommunicator>> communicators);

  Device device_;
  const std::string warning_;
  std::array<Event, kMarks> marks_;
  int64_t marks_made_ = 0;
  std::optional<Staging> staging_;  // made by the first copy: a plan needs none
  std::string network_;             // that prepare_join() has chosen
  std::unique_ptr<NcclCommunicator> communicator_;
  KernelTable<const Device> table_;
};

}  // namespace trainyard::cuda
