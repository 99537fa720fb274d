// src/runtime/cuda/sequences.cc: layer normalization, embeddings, softmax.
#include "src/runtime/common/op_params.h"
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

namespace gpu = kernels::cuda;

std::unique_ptr<Kernel> make_skip_norm(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([o = StreamOperands(device, g, n),
                      d = layer_norm_dims(g, n, normalization_form(n.attributes)),
                      p = dropout_params(g, n), drops = has_input(n, 4)](const KernelArgs& a) {
    gpu::layer_norm_forward(d,
                            {.x = o.in(a, 0),
                             .scale = o.in(a, 1),
                             .b = o.in(a, 2),
                             .y = o.out(a, 0),
                             .mean = a.out<float>(1),
                             .inv_std = a.out<float>(2)},
                            o.run(a),
                            {.skip = o.in(a, 3),
                             .sum = o.out(a, 3),
                             .dropout = {p, drops ? a.in<int64_t>(4) : nullptr}});
  });
}

std::unique_ptr<Kernel> make_skip_norm_grad(const Device& device, const Graph& g, const Node& n) {
  const kernels::LayerNormDims d = layer_norm_dims(g, n, normalization_form(n.attributes));
  return make_kernel(
      [o = StreamOperands(device, g, n), d, p = dropout_params(g, n),
       drops = has_input(n, 6)](const KernelArgs& a) {
        gpu::layer_norm_backward(d,
                                 {.x = o.in(a, 0),
                                  .scale = o.in(a, 1),
                                  .mean = o.number(a, 4),
                                  .inv_std = o.number(a, 3),
                                  .dy = o.in(a, 2),
                                  .dx = o.out(a, 0),
                                  .dscale = o.out(a, 1),
                                  .db = o.out(a, 2)},
                                 o.run(a),
                                 {.skip = o.in(a, 5),
                                  .dropout = {p, drops ? a.in<int64_t>(6) : nullptr},
                                  .dz = o.out(a, 3)});
      },
      gpu::layer_norm_backward_workspace_bytes(d));
}

}  // namespace

std::span<const CudaEntry> sequence_kernels() {
  using C = const Device;
  using enum NormalizationForm;
  static constexpr CudaEntry kEntries[] = {
      {"LayerNormalization", make_layer_norm<kLayer, C>},
      {"LayerNormalizationGrad",
       make_layer_norm_grad<kLayer, C, gpu::layer_norm_backward_workspace_bytes>},
      {"RMSNormalization", make_layer_norm<kRms, C>},
      {"RMSNormalizationGrad",
       make_layer_norm_grad<kRms, C, gpu::layer_norm_backward_workspace_bytes>},
      {"SkipNormalization", make_skip_norm},
      {"SkipNormalizationGrad", make_skip_norm_grad},
      {"Gather", make_gather<C>},
      {"GatherGrad", make_gather_grad<C, gpu::gather_backward_workspace_bytes>},
      {"SplitGather", make_gather<C>},
      {"SplitGatherGrad", make_gather_grad<C, gpu::gather_backward_workspace_bytes>},
      {"DistinctRows", make_distinct_rows<C, gpu::distinct_rows_workspace_bytes>},
      {"PositionEmbedding", make_positions<C>},
      {"PositionEmbeddingGrad",
       make_positions_grad<C, gpu::add_positions_backward_workspace_bytes>},
      {"RotaryTables", make_rotary_tables<C>},
      {"RotaryEmbedding", make_rotary<C>},
      {"SequenceLengths", make_sequence_lengths<C>},
      {"TensorScatter", make_tensor_scatter<C>},
      {"SequencePool", make_sequence_pool<C>},
      {"SequencePoolGrad", make_sequence_pool_grad<C>},
      {"Softmax", make_softmax<false, C>},
      {"SoftmaxGrad", make_softmax_grad<false, C>},
      {"LogSoftmax", make_softmax<true, C>},
      {"LogSoftmaxGrad", make_softmax_grad<true, C>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
