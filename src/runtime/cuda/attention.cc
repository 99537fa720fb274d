// src/runtime/cuda/attention.cc: attention and its gradient, with cuDNN if it has an engine, else
// with our own kernels. The forward and backward passes choose independently; both use the same
// log_sum_exp format.
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/cuda/fused_attention.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::cuda::In;
using kernels::cuda::Out;

int64_t attention_grad_bytes(const Device&, const kernels::AttentionDims& d) {
  return kernels::cuda::attention_backward_workspace_bytes(d);
}

void check_size(const Node& n, const AttentionParams& p) {
  TRAINYARD_CHECK(kernels::cuda::supports_attention(p.dims),
                  n.name + ": the cuda backend has no attention of heads of " +
                      std::to_string(p.dims.D) + " elements");
}

/// Allows our kernels tensor cores where the device has them: if the node allows TF32, and for
/// operands of 16 bits, which are exact in TF32. `query` is the index of the query's input.
AttentionParams own_params(const Device& device, const Graph& g, const Node& n, size_t query) {
  AttentionParams p = attention_params(g, n, query);
  bool is_half = true;
  for (size_t i = query; i < query + (p.packed ? 1 : 3); ++i) {
    is_half = is_half && input_info(g, n, i).is_half();
  }
  p.dims.tf32 = device.has_tf32() && (p.dims.tf32 || is_half);
  return p;
}

/// nullptr unless all tensors except log_sum_exp have the same 16-bit format, and every query sees
/// all keys or all up to itself.
std::shared_ptr<const FusedAttention> find_fused(const Device& device, const Graph& g,
                                                 const Node& n, const AttentionParams& p,
                                                 bool backward) {
  std::vector<TensorId> tensors;  // those that must have the same format: operands and results
  const auto add = [&](const std::vector<TensorId>& ids, size_t first, size_t count) {
    tensors.insert(tensors.end(), ids.begin() + first, ids.begin() + first + count);
  };
  if (p.limited) return nullptr;
  const size_t operands = p.packed ? 1 : 3;
  if (backward) {
    tensors = {n.inputs.at(0), n.inputs.at(2)};
    add(n.inputs, 3, operands);
    add(n.outputs, 0, operands);
  } else {
    if (n.outputs.size() < 2 || n.outputs[1] == kNoTensor)
      return nullptr;  // cuDNN always writes log_sum_exp
    tensors = {n.outputs.at(0)};
    add(n.inputs, 0, operands);
  }
  for (const TensorId id : tensors) {
    if (id == kNoTensor || format_of(g.tensor(id)) != format_of(g.tensor(tensors[0]))) {
      return nullptr;  // an omitted gradient is supported only by our own kernel
    }
  }
  return FusedAttention::find(device, {backward, p.dims, format_of(g.tensor(tensors[0]))},
                              attention_workspace_max(device.memory_bytes()));
}

std::unique_ptr<Kernel> make_any_attention(const Device& device, const Graph& g, const Node& n) {
  const AttentionParams p = attention_params(g, n, 0);
  if (auto fused = find_fused(device, g, n, p, /*backward=*/false)) {
    return make_kernel(
        [o = Operands(g, n), p, fused](const KernelArgs& a) {
          const AttentionParts<In> x(p, o.in(a, 0), o.in(a, 1), o.in(a, 2));
          fused->run(FusedAttention::Forward{x.q.data, x.k.data, x.v.data, o.out(a, 0).data,
                                             a.out<float>(1)},
                     a.workspace);
        },
        fused->workspace_bytes());
  }
  check_size(n, p);
  return make_attention_of<const Device>(device, g, n, own_params(device, g, n, 0));
}

std::unique_ptr<Kernel> make_any_attention_grad(const Device& device, const Graph& g,
                                                const Node& n) {
  const AttentionParams p = attention_params(g, n, 3);
  if (auto fused = find_fused(device, g, n, p, /*backward=*/true)) {
    return make_kernel(
        [o = Operands(g, n), p, fused](const KernelArgs& a) {
          const AttentionParts<In> x(p, o.in(a, 3), o.in(a, 4), o.in(a, 5));
          const AttentionParts<Out> dx(p, o.out(a, 0), o.out(a, 1), o.out(a, 2));
          fused->run(FusedAttention::Backward{x.q.data, x.k.data, x.v.data, o.in(a, 0).data,
                                              a.in<float>(1), o.in(a, 2).data, dx.q.data, dx.k.data,
                                              dx.v.data},
                     a.workspace);
        },
        fused->workspace_bytes());
  }
  check_size(n, p);
  return make_attention_grad_of<const Device, attention_grad_bytes>(device, g, n,
                                                                    own_params(device, g, n, 3));
}

}  // namespace

std::span<const CudaEntry> attention_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Attention", make_any_attention},
      {"AttentionGrad", make_any_attention_grad},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
