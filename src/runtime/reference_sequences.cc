// Sequences: normalisation of positions, embeddings, attention and the products it is made of.
#include "kernels/elementwise.h"
#include "kernels/layout.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_layer_norm(ReferenceContext&, const Graph& g, const Node& n) {
  const LayerNormDims d = layer_norm_dims(g, n);
  const bool has_bias = has_input(n, 2);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_bias](const KernelArgs& a) {
      reference::layer_norm_forward(d, a.in<T>(0), a.in<T>(1), has_bias ? a.in<T>(2) : nullptr,
                                    a.out<T>(0), d.rms ? nullptr : a.out<T>(1),
                                    d.rms ? a.out<T>(1) : a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_layer_norm_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const LayerNormDims d = layer_norm_dims(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::layer_norm_backward(d, a.in<T>(0), a.in<T>(1), d.rms ? nullptr : a.in<T>(4),
                                     a.in<T>(3), a.in<T>(2), a.out<T>(0), a.out<T>(1),
                                     d.rms ? nullptr : a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_gather(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& table = input_info(g, n, 0).type;
  const GatherDims d = gather_dims(table.shape, input_info(g, n, 1).type.shape);
  return with_float_type(table.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::gather(d, a.in<T>(0), a.in<int32_t>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_gather_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& table = output_info(g, n, 0).type;
  const GatherDims d = gather_dims(table.shape, input_info(g, n, 0).type.shape);
  return with_float_type(table.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::gather_backward(d, a.in<int32_t>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_positions(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& x = input_info(g, n, 0).type;
  const bool has_prefix = has_input(n, 2);
  const PositionDims d = position_dims(x.shape, has_prefix ? input_info(g, n, 2).type.shape[0] : 0);
  return with_float_type(x.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_prefix](const KernelArgs& a) {
      reference::add_positions(d, a.in<T>(0), a.in<T>(1), has_prefix ? a.in<T>(2) : nullptr,
                               a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_positions_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& dy = input_info(g, n, 0).type;
  const int64_t prefix = n.attributes.get_int("prefix", 0);
  const PositionDims d{dy.shape[0], dy.shape[1] - prefix, dy.shape[2], prefix};
  return with_float_type(dy.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::add_positions_backward(d, a.in<T>(0), a.out<T>(0), a.out<T>(1), a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_sequence_pool(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& x = input_info(g, n, 0).type;
  const SequencePoolDims d = sequence_pool_dims(n, x.shape);
  const bool has_tokens = has_input(n, 1);
  return with_float_type(x.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_tokens](const KernelArgs& a) {
      reference::sequence_pool(d, a.in<T>(0), has_tokens ? a.in<int32_t>(1) : nullptr, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_sequence_pool_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType& dx = output_info(g, n, 0).type;
  const SequencePoolDims d = sequence_pool_dims(n, dx.shape);
  const bool has_tokens = has_input(n, 1);
  return with_float_type(dx.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_tokens](const KernelArgs& a) {
      reference::sequence_pool_backward(d, has_tokens ? a.in<int32_t>(1) : nullptr, a.in<T>(0),
                                        a.out<T>(0));
    });
  });
}

// Positions of a channels-last image lie as those of a sequence do.
std::unique_ptr<Kernel> make_image_to_sequence(ReferenceContext& context, const Graph& g,
                                               const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  return with_float_type(x.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (x.layout == Layout::kChannelsLast) {
      return make_stored_copy(conversion_of(context), x, output_info(g, n, 0));
    }
    return make_kernel([d = image_dims(x.type.shape)](const KernelArgs& a) {
      reference::nchw_to_nhwc(d, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_image_to_sequence_grad(ReferenceContext& context, const Graph& g,
                                                    const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  return with_float_type(dx.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (dx.layout == Layout::kChannelsLast) {
      return make_stored_copy(conversion_of(context), input_info(g, n, 0), dx);
    }
    return make_kernel([d = image_dims(dx.type.shape)](const KernelArgs& a) {
      reference::nhwc_to_nchw(d, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_attention(ReferenceContext&, const Graph& g, const Node& n) {
  const AttentionParams p = attention_params(g, n, 0);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      const AttentionOperands<const T> x(p, a.in<T>(0), p.packed ? nullptr : a.in<T>(1),
                                         p.packed ? nullptr : a.in<T>(2));
      reference::attention_forward(p.dims, attention_step(a, 0), x.q, x.k, x.v, a.out<T>(0),
                                   a.out<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_attention_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const AttentionParams p = attention_params(g, n, 3);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      const AttentionOperands<const T> x(p, a.in<T>(3), p.packed ? nullptr : a.in<T>(4),
                                         p.packed ? nullptr : a.in<T>(5));
      const AttentionOperands<T> dx(p, a.out<T>(0), a.out<T>(1), a.out<T>(2));
      reference::attention_backward<T>(p.dims, attention_step(a, 3), x.q, x.k, x.v, a.in<T>(0),
                                       a.in<T>(1), a.in<T>(2), {dx.q, dx.k, dx.v});
    });
  });
}

std::unique_ptr<Kernel> make_mat_mul(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = mat_mul_dims(g, n)](const KernelArgs& a) {
      reference::matmul_forward(d, a.in<T>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_mat_mul_grad(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = mat_mul_dims(g, n)](const KernelArgs& a) {
      reference::matmul_backward(d, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0), a.out<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_softmax(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = softmax_dims(g, n)](const KernelArgs& a) {
      reference::softmax_forward(d, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_softmax_grad(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = softmax_dims(g, n)](const KernelArgs& a) {
      reference::softmax_backward(d, a.in<T>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_sequence_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
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
      {"MatMul", make_mat_mul},
      {"MatMulGrad", make_mat_mul_grad},
      {"Softmax", make_softmax},
      {"SoftmaxGrad", make_softmax_grad},
      {"LogSoftmax", make_softmax},
      {"LogSoftmaxGrad", make_softmax_grad},
  };
  return kEntries;
}

}  // namespace trainyard
