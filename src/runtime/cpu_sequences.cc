// Sequences: normalisation of positions, embeddings, attention and the products it is made of.
#include "kernels/elementwise.h"
#include "kernels/layout.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

std::unique_ptr<Kernel> make_layer_norm(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = layer_norm_dims(g, n), has_bias = has_input(n, 2),
                      &team = context.team](const KernelArgs& a) {
    cpu::layer_norm_forward(d, a.in<float>(0), a.in<float>(1), has_bias ? a.in<float>(2) : nullptr,
                            a.out<float>(0), d.rms ? nullptr : a.out<float>(1),
                            d.rms ? a.out<float>(1) : a.out<float>(2), team);
  });
}

std::unique_ptr<Kernel> make_layer_norm_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const LayerNormDims d = layer_norm_dims(g, n);
  return make_kernel(
      [d, &team = context.team](const KernelArgs& a) {
        cpu::layer_norm_backward(d, a.in<float>(0), a.in<float>(1),
                                 d.rms ? nullptr : a.in<float>(4), a.in<float>(3), a.in<float>(2),
                                 a.out<float>(0), a.out<float>(1),
                                 d.rms ? nullptr : a.out<float>(2), a.workspace, team);
      },
      cpu::layer_norm_backward_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_gather(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel(
      [d = gather_dims(input_info(g, n, 0).type.shape, input_info(g, n, 1).type.shape),
       &team = context.team](const KernelArgs& a) {
        cpu::gather(d, a.in<float>(0), a.in<int32_t>(1), a.out<float>(0), team);
      });
}

std::unique_ptr<Kernel> make_gather_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 1));
  return make_kernel(
      [d = gather_dims(output_info(g, n, 0).type.shape, input_info(g, n, 0).type.shape),
       &team = context.team](const KernelArgs& a) {
        cpu::gather_backward(d, a.in<int32_t>(0), a.in<float>(1), a.out<float>(0), team);
      });
}

std::unique_ptr<Kernel> make_positions(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const bool has_prefix = has_input(n, 2);
  const int64_t prefix = has_prefix ? input_info(g, n, 2).type.shape[0] : 0;
  return make_kernel([d = position_dims(input_info(g, n, 0).type.shape, prefix), has_prefix,
                      &team = context.team](const KernelArgs& a) {
    cpu::add_positions(d, a.in<float>(0), a.in<float>(1), has_prefix ? a.in<float>(2) : nullptr,
                       a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_positions_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const Shape& dy = input_info(g, n, 0).type.shape;
  const int64_t prefix = n.attributes.get_int("prefix", 0);
  return make_kernel([d = PositionDims{dy[0], dy[1] - prefix, dy[2], prefix},
                      &team = context.team](const KernelArgs& a) {
    cpu::add_positions_backward(d, a.in<float>(0), a.out<float>(0), a.out<float>(1),
                                a.out<float>(2), team);
  });
}

std::unique_ptr<Kernel> make_sequence_pool(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = sequence_pool_dims(n, input_info(g, n, 0).type.shape),
                      has_tokens = has_input(n, 1), &team = context.team](const KernelArgs& a) {
    cpu::sequence_pool(d, a.in<float>(0), has_tokens ? a.in<int32_t>(1) : nullptr, a.out<float>(0),
                       team);
  });
}

std::unique_ptr<Kernel> make_sequence_pool_grad(CpuContext& context, const Graph& g,
                                                const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = sequence_pool_dims(n, output_info(g, n, 0).type.shape),
                      has_tokens = has_input(n, 1), &team = context.team](const KernelArgs& a) {
    cpu::sequence_pool_backward(d, has_tokens ? a.in<int32_t>(1) : nullptr, a.in<float>(0),
                                a.out<float>(0), team);
  });
}

// Positions of a channels-last image lie as those of a sequence do.
std::unique_ptr<Kernel> make_image_to_sequence(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  if (x.layout == Layout::kChannelsLast) {
    return make_stored_copy(conversion_of(context), x, output_info(g, n, 0));
  }
  return make_kernel([d = image_dims(x.type.shape), &team = context.team](const KernelArgs& a) {
    cpu::nchw_to_nhwc(d, a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_image_to_sequence_grad(CpuContext& context, const Graph& g,
                                                    const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  if (dx.layout == Layout::kChannelsLast) {
    return make_stored_copy(conversion_of(context), input_info(g, n, 0), dx);
  }
  return make_kernel([d = image_dims(dx.type.shape), &team = context.team](const KernelArgs& a) {
    cpu::nhwc_to_nchw(d, a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_attention(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const AttentionParams p = attention_params(g, n, 0);
  return make_kernel(
      [p, &team = context.team](const KernelArgs& a) {
        const AttentionOperands<const float> x(p, a.in<float>(0),
                                               p.packed ? nullptr : a.in<float>(1),
                                               p.packed ? nullptr : a.in<float>(2));
        cpu::attention_forward(p.dims, attention_step(a, 0), x.q, x.k, x.v, a.out<float>(0),
                               a.out<float>(1), a.workspace, team);
      },
      cpu::attention_forward_workspace_bytes(p.dims, context.team));
}

std::unique_ptr<Kernel> make_attention_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const AttentionParams p = attention_params(g, n, 3);
  return make_kernel(
      [p, &team = context.team](const KernelArgs& a) {
        const AttentionOperands<const float> x(p, a.in<float>(3),
                                               p.packed ? nullptr : a.in<float>(4),
                                               p.packed ? nullptr : a.in<float>(5));
        const AttentionOperands<float> dx(p, a.out<float>(0), a.out<float>(1), a.out<float>(2));
        cpu::attention_backward(p.dims, attention_step(a, 3), x.q, x.k, x.v, a.in<float>(0),
                                a.in<float>(1), a.in<float>(2), {dx.q, dx.k, dx.v}, a.workspace,
                                team);
      },
      cpu::attention_backward_workspace_bytes(p.dims, context.team));
}

class MatMulKernel final : public Kernel {
 public:
  MatMulKernel(CpuContext& context, const Graph& g, const Node& n)
      : product_(mat_mul_dims(g, n), context.team) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    product_.run(a.in<float>(0), a.in<float>(1), a.out<float>(0), a.workspace);
  }

 private:
  cpu::MatMulForward product_;
};

class MatMulGradKernel final : public Kernel {
 public:
  MatMulGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : product_(mat_mul_dims(g, n), has_output(n, 0), has_output(n, 1), context.team) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    product_.run(a.in<float>(0), a.in<float>(1), a.in<float>(2), a.out<float>(0), a.out<float>(1),
                 a.workspace);
  }

 private:
  cpu::MatMulBackward product_;
};

std::unique_ptr<Kernel> make_softmax(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = softmax_dims(g, n), &team = context.team](const KernelArgs& a) {
    cpu::softmax_forward(d, a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_softmax_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = softmax_dims(g, n), &team = context.team](const KernelArgs& a) {
    cpu::softmax_backward(d, a.in<float>(0), a.in<float>(1), a.out<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_sequence_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"LayerNormalization", make_layer_norm},
      {"LayerNormalizationGrad", make_layer_norm_grad},
      {"RMSNormalization", make_layer_norm},
      {"RMSNormalizationGrad", make_layer_norm_grad},
      {"Gather", make_gather},
      {"GatherGrad", make_gather_grad},
      {"PositionEmbedding", make_positions},
      {"PositionEmbeddingGrad", make_positions_grad},
      {"SequencePool", make_sequence_pool},
      {"SequencePoolGrad", make_sequence_pool_grad},
      {"ImageToSequence", make_image_to_sequence},
      {"ImageToSequenceGrad", make_image_to_sequence_grad},
      {"Attention", make_attention},
      {"AttentionGrad", make_attention_grad},
      {"MatMul", make<MatMulKernel>},
      {"MatMulGrad", make<MatMulGradKernel>},
      {"Softmax", make_softmax},
      {"SoftmaxGrad", make_softmax_grad},
      {"LogSoftmax", make_softmax},
      {"LogSoftmaxGrad", make_softmax_grad},
  };
  return kEntries;
}

}  // namespace trainyard
