#include "src/runtime/cuda/backend.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/copy_pieces.h"
#include "kernels/resident_rows.h"
#include "src/base/check.h"
#include "src/runtime/cuda/fused_attention.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/nccl_init.h"
#include "src/runtime/cuda/nccl_network.h"
#include "src/runtime/cuda/nvrtc.h"
#include "src/runtime/cuda/nvtx_range.h"
#include "src/runtime/cuda/peak.h"

namespace trainyard::cuda {
namespace {

/// Checks a kernel's launches; errors are reported with the node's name, its workspace, and the
/// libraries' algorithms.
class CheckedKernel final : public Kernel {
 public:
  CheckedKernel(std::unique_ptr<Kernel> kernel, const Node& node,
                std::vector<std::string> algorithms, size_t others = 0)
      : kernel_(std::move(kernel)),
        what_(node.name + " (" + std::string(node.op->type()) + ")"),
        algorithms_(std::move(algorithms)) {
    if (others > 0) what_ += " and " + std::to_string(others) + " others";
  }
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  bool accepts_stored_types() const override {
    return true;
  }  // operands carry their storage format (view.h)
  void run(const KernelArgs& args) override {
    const NvtxRange range(what_.c_str());
    (void)cudaGetLastError();  // clears the error of an earlier call that was allowed to fail
    try {
      kernel_->run(args);
      check(cudaGetLastError(), what_);
    } catch (const CudaError& e) {
      throw CudaError(e.what() + circumstances(args), e.code(), e.fault());
    }
  }

 private:
  std::string circumstances(const KernelArgs& args) const {
    char address[32];
    std::snprintf(address, sizeof address, "%p", args.workspace);
    std::string text =
        "; workspace of " + std::to_string(workspace_bytes()) + " bytes at " + address;
    for (const std::string& algorithm : algorithms_) text += "; " + algorithm;
    return text;
  }

  std::unique_ptr<Kernel> kernel_;
  std::string what_;
  std::vector<std::string> algorithms_;
};

class EventStopwatch final : public Stopwatch {
 public:
  explicit EventStopwatch(const Device& device) : device_(device) {}
  void mark() override {
    device_.make_current();
    if (points_ == events_.size()) events_.push_back(Device::make_timed_event());
    check(cudaEventRecord(events_[points_++].get(), device_.stream()), "cudaEventRecord");
  }
  std::vector<double> take() override {
    device_.make_current();
    device_.synchronize();
    std::vector<double> seconds;
    for (size_t i = 0; i < points_; ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[0].get(), events_[i].get()), "cudaEventElapsedTime");
      seconds.push_back(static_cast<double>(ms) / 1e3);
    }
    points_ = 0;
    return seconds;
  }

 private:
  const Device& device_;
  std::vector<Event> events_;  // reused by later measurements
  size_t points_ = 0;
};

/// Returns what this host's libraries lack; empty if nothing.
std::string find_warnings() {
  std::string text = open_nvrtc();
  const std::string old = attention_version_warning(cudnnGetVersion());
  if (!text.empty() && !old.empty()) text += ". ";
  return text + old;
}

}  // namespace

kernels::cuda::Format format_of(const TensorInfo& tensor) {
  return tensor.is_bf16()  ? kernels::cuda::Format::kBf16
         : tensor.is_f16() ? kernels::cuda::Format::kF16
                           : kernels::cuda::Format::kF32;
}

std::string name_of(kernels::cuda::Format format) {
  using enum kernels::cuda::Format;
  return format == kF32 ? "F32" : format == kBf16 ? "bf16" : "f16";
}

void add_numbers(std::string& key, const char* name, std::initializer_list<int64_t> values) {
  key += std::string(" ") + name;
  const char* before = "=";
  for (const int64_t v : values) {
    key += before + std::to_string(v);
    before = ",";
  }
}

Operands::Operands(const Graph& graph, const Node& node) {
  const auto stored = [&](TensorId id) {
    return id == kNoTensor ? Format::kF32 : format_of(graph.tensor(id));
  };
  for (const TensorId id : node.inputs) in_.push_back(stored(id));
  for (const TensorId id : node.outputs) out_.push_back(stored(id));
}

CudaBackend::CudaBackend(int ordinal)
    : device_(ordinal), warning_(find_warnings()), recorder_(device_) {
  for (Event& mark : marks_) mark = device_.make_host_event();
  for (const auto table :
       {activation_kernels, attention_kernels, box_kernels, convolution_kernels,
        elementwise_kernels, gemm_kernels, head_loss_kernels, image_kernels, mat_mul_kernels,
        muon_kernels, sequence_kernels, text_kernels, training_kernels, update_kernels}) {
    table_.add(table());
  }
}

bool CudaBackend::has_kernel(std::string_view op_type) const {
  return is_exchange(op_type) || table_.contains(op_type);
}

std::unique_ptr<Kernel> CudaBackend::prepare(const Graph& graph, const Node& node) {
  device_.make_current();
  (void)device_.take_selected();
  std::unique_ptr<Kernel> kernel = is_exchange(node.op->type())
                                       ? make_exchange(device_, communicator_.get(), graph, node)
                                       : table_.make(device_, graph, node);
  return std::make_unique<CheckedKernel>(std::move(kernel), node, device_.take_selected());
}

std::unique_ptr<Kernel> CudaBackend::prepare_group(const Graph& graph,
                                                   std::span<const NodeId> nodes) {
  device_.make_current();
  (void)device_.take_selected();  // an earlier preparation may have failed midway
  auto kernel = make_update_group(device_, graph, nodes);
  if (kernel == nullptr) return nullptr;
  return std::make_unique<CheckedKernel>(std::move(kernel), graph.node(nodes[0]),
                                         device_.take_selected(), nodes.size() - 1);
}

void CudaBackend::gather_rows(const kernels::ResidentRows& resident,
                              const kernels::ResidentSample* samples, int64_t count, void* x,
                              void* target, std::span<const kernels::CopyPiece> copies) {
  TRAINYARD_CHECK(copies.size() <= kernels::kCopyPiecesMax, "too many pieces");
  const NvtxRange range("gather_rows");
  device_.make_current();
  kernels::cuda::gather_rows(resident, samples, count, x, target, copies, device_.stream());
  check(cudaGetLastError(), "gathering the rows of a batch");
}

void CudaBackend::copy_pieces(std::span<const kernels::CopyPiece> pieces) {
  TRAINYARD_CHECK(pieces.size() <= kernels::kCopyPiecesMax, "too many pieces");
  const NvtxRange range("copy_pieces");
  device_.make_current();
  kernels::cuda::copy_pieces(pieces, device_.stream());
  check(cudaGetLastError(), "copying the inputs and results of steps");
}

std::unique_ptr<Stopwatch> CudaBackend::make_stopwatch() {
  return std::make_unique<EventStopwatch>(device_);
}

DevicePeak CudaBackend::peak() const { return peak_of(device_); }

void* CudaBackend::allocate(int64_t bytes) {
  TRAINYARD_CHECK(bytes >= 0, "allocate(" + std::to_string(bytes) + ")");
  bytes = std::max(bytes, kCudaAlignment);
  DeviceMemory memory = device_.allocate(bytes);
  check(cudaMemsetAsync(memory.get(), 0, static_cast<size_t>(bytes), device_.stream()),
        "zeroing the arena");
  device_.synchronize();
  return memory.release();
}

// Work under way may still use the memory: when a job ends between two steps, the next one is
// already running. This also runs after a device error, and nobody could handle a failed free.
void CudaBackend::release(void* memory) noexcept {
  (void)cudaStreamSynchronize(device_.stream());
  (void)cudaFree(memory);
}

void CudaBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  staging().copy_to_device(device,
                           {static_cast<const std::byte*>(host), static_cast<size_t>(bytes)});
}

void CudaBackend::copy_block_to_device(std::span<const HostPiece> pieces) {
  staging().copy_to_device(pieces);
}

Staging& CudaBackend::staging() {
  device_.make_current();
  if (!staging_.has_value()) staging_.emplace(device_);
  return *staging_;
}

void CudaBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  device_.make_current();
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                        device_.stream()),
        "copying from the GPU");
  device_.synchronize();
}

void* CudaBackend::allocate_host(int64_t bytes) {
  device_.make_current();
  return make_pinned(bytes).release();
}

void CudaBackend::release_host(void* memory) noexcept {
  (void)cudaStreamSynchronize(device_.stream());
  (void)cudaFreeHost(memory);
}

void CudaBackend::begin_copy_to_host(void* host, const void* device, int64_t bytes) {
  device_.make_current();
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                        device_.stream()),
        "copying from the GPU");
}

int64_t CudaBackend::mark() {
  device_.make_current();
  const int64_t mark = marks_made_++;
  check(cudaEventRecord(marks_[static_cast<size_t>(mark % kMarks)].get(), device_.stream()),
        "cudaEventRecord");
  return mark;
}

void CudaBackend::wait(int64_t mark) {
  TRAINYARD_CHECK(mark < marks_made_ && mark >= marks_made_ - kMarks,
                  "a mark that no longer exists");
  device_.make_current();
  // Faults of earlier kernels are reported here.
  check(cudaEventSynchronize(marks_[static_cast<size_t>(mark % kMarks)].get()),
        "waiting for a step on GPU " + std::to_string(device_.ordinal()));
}

Status CudaBackend::connect(std::span<Backend* const> ranks) {
  ASSIGN_OR_RETURN(const Nccl* nccl, open_nccl());
  take(ranks, NcclCommunicator::make(*nccl, devices_of(ranks)));
  return {};
}

Result<std::string> CudaBackend::prepare_join(const ProcessGroup& group) {
  network_ = choose_network(group.address);
  ASSIGN_OR_RETURN(const Nccl* nccl, open_nccl());
  if (group.first_rank > 0) return std::string();
  return draw_group_id(*nccl);
}

Status CudaBackend::join(std::span<Backend* const> ranks, const ProcessGroup& group) {
  ASSIGN_OR_RETURN(const Nccl* nccl, open_nccl());
  ASSIGN_OR_RETURN(auto communicators,
                   NcclCommunicator::join(*nccl, devices_of(ranks), group, network_));
  take(ranks, std::move(communicators));
  return {};
}

std::vector<const Device*> CudaBackend::devices_of(std::span<Backend* const> ranks) {
  std::vector<const Device*> devices;
  for (Backend* rank : ranks) {
    const auto* const backend = dynamic_cast<CudaBackend*>(rank);
    TRAINYARD_CHECK(backend != nullptr, "ranks of several kinds");
    devices.push_back(&backend->device_);
  }
  return devices;
}

void CudaBackend::take(std::span<Backend* const> ranks,
                       std::vector<std::unique_ptr<NcclCommunicator>> communicators) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    dynamic_cast<CudaBackend&>(*ranks[r]).communicator_ = std::move(communicators[r]);
  }
}

void CudaBackend::synchronize() {
  device_.make_current();
  device_.synchronize();
}

}  // namespace trainyard::cuda
