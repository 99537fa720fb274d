// src/runtime/cuda/kernels.h: the kernel tables of the cuda backend, one per family file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/operands.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

using CudaEntry = KernelEntry<const Device>;

kernels::cuda::Format format_of(const TensorInfo& tensor);
/// "F32", "bf16" or "f16".
std::string name_of(kernels::cuda::Format format);
/// Adds " name=1,2,3" to the key of a problem whose algorithm is chosen (src/runtime/algorithms.h).
void add_numbers(std::string& key, const char* name, std::initializer_list<int64_t> values);

/// A node's operands in the form that kernels take. Their storage formats are determined once, when
/// the kernel is prepared.
class Operands {
 public:
  Operands(const Graph& graph, const Node& node);
  /// The view contains nullptr if the operand is omitted.
  kernels::cuda::In in(const KernelArgs& a, size_t i) const {
    return {i < a.inputs.size() ? a.inputs[i] : nullptr, i < in_.size() ? in_[i] : Format::kF32};
  }
  kernels::cuda::Out out(const KernelArgs& a, size_t i) const {
    return {i < a.outputs.size() ? a.outputs[i] : nullptr,
            i < out_.size() ? out_[i] : Format::kF32};
  }
  kernels::cuda::Out updated(const KernelArgs& a, size_t i, size_t k) const {
    return {k < a.mutated.size() ? a.mutated[k] : nullptr, i < in_.size() ? in_[i] : Format::kF32};
  }

 private:
  using Format = kernels::cuda::Format;
  std::vector<Format> in_, out_;
};

/// The backend's operands as described in src/runtime/common/adapter.h.
class StreamOperands final : public Operands {
 public:
  using Type = kernels::cuda::Views;
  using Number = float;

  StreamOperands(const Device& device, const Graph& graph, const Node& node)
      : Operands(graph, node), stream_(device.stream()) {}
  const float* number(const KernelArgs& a, size_t i) const {
    return i < a.inputs.size() ? a.in<float>(i) : nullptr;
  }
  kernels::cuda::Run run(const KernelArgs& a) const { return {stream_, a.workspace}; }

 private:
  CUstream_st* stream_;
};
template <typename F>
std::unique_ptr<Kernel> with_operands(const Device& device, const Graph& g, const Node& n,
                                      const TensorInfo& t, F f) {
  TRAINYARD_CHECK(t.type.dtype == DType::kF32, n.name + ": the cuda backend computes in F32");
  return f(StreamOperands(device, g, n));
}

/// Creates the kernel of class K for `node`. The entries of the tables below point to such
/// functions.
template <typename K>
std::unique_ptr<Kernel> make_device_kernel(const Device& device, const Graph& graph,
                                           const Node& node) {
  return std::make_unique<K>(device, graph, node);
}

std::span<const CudaEntry> activation_kernels();
std::span<const CudaEntry> attention_kernels();
std::span<const CudaEntry> box_kernels();
std::span<const CudaEntry> convolution_kernels();
std::span<const CudaEntry> elementwise_kernels();
std::span<const CudaEntry> gemm_kernels();
std::span<const CudaEntry> head_loss_kernels();
std::span<const CudaEntry> image_kernels();
std::span<const CudaEntry> mat_mul_kernels();
std::span<const CudaEntry> muon_kernels();
std::span<const CudaEntry> sequence_kernels();
std::span<const CudaEntry> text_kernels();
std::span<const CudaEntry> training_kernels();
std::span<const CudaEntry> update_kernels();

/// Several updates, or casts, of one op type in one launch (Backend::prepare_group()); nullptr if
/// the op type has no group kernel.
std::unique_ptr<Kernel> make_update_group(const Device& device, const Graph& graph,
                                          std::span<const NodeId> nodes);

}  // namespace trainyard::cuda
