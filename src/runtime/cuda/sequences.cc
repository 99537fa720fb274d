// Sequences: normalisation of positions, embeddings, softmax.
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using namespace kernels;        // NOLINT: dimensions
using namespace kernels::cuda;  // NOLINT: kernels

/// With kSkip the last input is added to the first, and the last output is their sum. With kDrops
/// the step stands behind it.
template <bool kSkip, bool kDrops = false>
std::unique_ptr<Kernel> make_layer_norm(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([o = Operands(g, n), d = layer_norm_dims(g, n), p = dropout_params(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    const size_t skip = a.inputs.size() - (kDrops ? 2 : 1);
    layer_norm_forward(d, o.in(a, 0), o.in(a, 1), d.rms ? In{} : o.in(a, 2), o.out(a, 0),
                       d.rms ? nullptr : a.out<float>(1), d.rms ? a.out<float>(1) : a.out<float>(2),
                       stream, kSkip ? o.in(a, skip) : In{},
                       kSkip ? o.out(a, a.outputs.size() - 1) : Out{},
                       {p, kDrops ? a.in<int64_t>(skip + 1) : nullptr});
  });
}

/// With kSkip the last input is added to dx. With kDrops the step stands behind it, and the last
/// output is dz.
template <bool kSkip, bool kDrops = false>
std::unique_ptr<Kernel> make_layer_norm_grad(const Device& device, const Graph& g, const Node& n) {
  const LayerNormDims d = layer_norm_dims(g, n);
  return make_kernel(
      [o = Operands(g, n), d, p = dropout_params(g, n),
       stream = device.stream()](const KernelArgs& a) {
        const size_t skip = a.inputs.size() - (kDrops ? 2 : 1);
        layer_norm_backward(
            d, o.in(a, 0), o.in(a, 1), d.rms ? nullptr : a.in<float>(4), a.in<float>(3), o.in(a, 2),
            o.out(a, 0), o.out(a, 1), d.rms ? Out{} : o.out(a, 2), a.workspace, stream,
            kSkip ? o.in(a, skip) : In{}, {p, kDrops ? a.in<int64_t>(skip + 1) : nullptr},
            kDrops ? o.out(a, a.outputs.size() - 1) : Out{});
      },
      layer_norm_backward_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_gather(const Device& device, const Graph& g, const Node& n) {
  const GatherDims d = gather_dims(input_info(g, n, 0).type.shape, input_info(g, n, 1).type.shape);
  return make_kernel([o = Operands(g, n), d, stream = device.stream()](const KernelArgs& a) {
    gather(d, o.in(a, 0), a.in<int32_t>(1), o.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_gather_grad(const Device& device, const Graph& g, const Node& n) {
  const GatherDims d = gather_dims(output_info(g, n, 0).type.shape, input_info(g, n, 0).type.shape);
  return make_kernel(
      [o = Operands(g, n), d, stream = device.stream()](const KernelArgs& a) {
        gather_backward(d, a.in<int32_t>(0), o.in(a, 1), o.out(a, 0), a.workspace, stream);
      },
      gather_backward_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_positions(const Device& device, const Graph& g, const Node& n) {
  const bool has_prefix = has_input(n, 2);
  const int64_t prefix = has_prefix ? input_info(g, n, 2).type.shape[0] : 0;
  return make_kernel([o = Operands(g, n), d = position_dims(input_info(g, n, 0).type.shape, prefix),
                      has_prefix, stream = device.stream()](const KernelArgs& a) {
    add_positions(d, o.in(a, 0), o.in(a, 1), has_prefix ? o.in(a, 2) : In{}, o.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_positions_grad(const Device& device, const Graph& g, const Node& n) {
  const Shape& dy = input_info(g, n, 0).type.shape;
  const int64_t prefix = n.attributes.get_int("prefix", 0);
  const PositionDims d{dy[0], dy[1] - prefix, dy[2], prefix};
  return make_kernel(
      [o = Operands(g, n), d, stream = device.stream()](const KernelArgs& a) {
        add_positions_backward(d, o.in(a, 0), o.out(a, 0), o.out(a, 1), o.out(a, 2), a.workspace,
                               stream);
      },
      add_positions_backward_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_sequence_pool(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([o = Operands(g, n), d = sequence_pool_dims(n, input_info(g, n, 0).type.shape),
                      has_tokens = has_input(n, 1), stream = device.stream()](const KernelArgs& a) {
    sequence_pool(d, o.in(a, 0), has_tokens ? a.in<int32_t>(1) : nullptr, o.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_sequence_pool_grad(const Device& device, const Graph& g,
                                                const Node& n) {
  return make_kernel([o = Operands(g, n),
                      d = sequence_pool_dims(n, output_info(g, n, 0).type.shape),
                      has_tokens = has_input(n, 1), stream = device.stream()](const KernelArgs& a) {
    sequence_pool_backward(d, has_tokens ? a.in<int32_t>(1) : nullptr, o.in(a, 0), o.out(a, 0),
                           stream);
  });
}

std::unique_ptr<Kernel> make_softmax(const Device& device, const Graph& g, const Node& n) {
  return make_kernel(
      [o = Operands(g, n), d = softmax_dims(g, n), stream = device.stream()](const KernelArgs& a) {
        softmax_forward(d, o.in(a, 0), o.out(a, 0), stream);
      });
}

std::unique_ptr<Kernel> make_softmax_grad(const Device& device, const Graph& g, const Node& n) {
  return make_kernel(
      [o = Operands(g, n), d = softmax_dims(g, n), stream = device.stream()](const KernelArgs& a) {
        softmax_backward(d, o.in(a, 0), o.in(a, 1), o.out(a, 0), stream);
      });
}

}  // namespace

std::span<const CudaEntry> sequence_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"LayerNormalization", make_layer_norm<false>},
      {"LayerNormalizationGrad", make_layer_norm_grad<false>},
      {"RMSNormalization", make_layer_norm<false>},
      {"RMSNormalizationGrad", make_layer_norm_grad<false>},
      {"SkipLayerNormalization", make_layer_norm<true>},
      {"SkipLayerNormalizationGrad", make_layer_norm_grad<true>},
      {"SkipRMSNormalization", make_layer_norm<true>},
      {"SkipRMSNormalizationGrad", make_layer_norm_grad<true>},
      {"DropoutSkipLayerNormalization", make_layer_norm<true, true>},
      {"DropoutSkipLayerNormalizationGrad", make_layer_norm_grad<true, true>},
      {"DropoutSkipRMSNormalization", make_layer_norm<true, true>},
      {"DropoutSkipRMSNormalizationGrad", make_layer_norm_grad<true, true>},
      {"Gather", make_gather},
      {"GatherGrad", make_gather_grad},
      {"PositionEmbedding", make_positions},
      {"PositionEmbeddingGrad", make_positions_grad},
      {"SequencePool", make_sequence_pool},
      {"SequencePoolGrad", make_sequence_pool_grad},
      {"Softmax", make_softmax},
      {"SoftmaxGrad", make_softmax_grad},
      {"LogSoftmax", make_softmax},
      {"LogSoftmaxGrad", make_softmax_grad},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
