// src/runtime/cuda/backend.h: the `cuda` backend.
//
// has_kernel() looks up ops in the backend's tables (kernels.h), so that a model with another op
// can be planned for the CPU.
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
#include "src/runtime/cuda/recording.h"
#include "src/runtime/cuda/staging.h"

namespace trainyard::cuda {

class CudaBackend final : public Backend {
 public:
  /// Throws CudaError if the GPU cannot be used.
  explicit CudaBackend(int ordinal);

  std::string_view name() const override { return "cuda"; }
  Processor processor() const override { return Processor::kGpu; }
  std::string warning() const override { return warning_; }
  bool has_kernel(std::string_view op_type) const override;
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  std::unique_ptr<Kernel> prepare_group(const Graph& graph, std::span<const NodeId> nodes) override;
  /// Records CUDA graphs.
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    return recorder_.record(submit);
  }
  void enter_lane(Lane lane, bool waits_for_all) override {
    recorder_.enter_lane(lane, waits_for_all);
  }

  int64_t alignment() const override { return kCudaAlignment; }
  bool has_bf16() const override { return device_.has_bf16(); }
  void* allocate(int64_t bytes) override;
  void release(void* memory) noexcept override;
  /// Copies through pinned memory and returns without waiting for the GPU's earlier work.
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  /// Pieces that fit together into a staging slot need only one copy and one launch.
  void copy_block_to_device(std::span<const HostPiece> pieces) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void synchronize() override;

  bool supports_resident_rows() const override { return true; }
  void gather_rows(const kernels::ResidentRows& resident, const kernels::ResidentSample* samples,
                   int64_t count, void* x, void* target,
                   std::span<const kernels::CopyPiece> copies) override;
  void copy_pieces(std::span<const kernels::CopyPiece> pieces) override;

  /// Measures with CUDA events on the stream.
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

  /// Connects with NCCL, which must be installed.
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
  Recorder recorder_;
  std::array<Event, kMarks> marks_;
  int64_t marks_made_ = 0;
  std::optional<Staging> staging_;  // created by the first copy, since planning needs none
  std::string network_;             // the description from choose_network(), set by prepare_join()
  std::unique_ptr<NcclCommunicator> communicator_;
  KernelTable<const Device> table_;
};

}  // namespace trainyard::cuda
