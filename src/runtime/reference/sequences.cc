// src/runtime/reference/sequences.cc: layer normalization, embeddings, attention and matrix
// products.
#include "src/runtime/common/op_params.h"
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

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

}  // namespace

std::span<const ReferenceEntry> reference_sequence_kernels() {
  using C = ReferenceContext;
  using enum NormalizationForm;
  static constexpr ReferenceEntry kEntries[] = {
      {"LayerNormalization", make_layer_norm<kLayer, C>},
      {"LayerNormalizationGrad", make_layer_norm_grad<kLayer, C>},
      {"RMSNormalization", make_layer_norm<kRms, C>},
      {"RMSNormalizationGrad", make_layer_norm_grad<kRms, C>},
      {"DistinctRows", make_distinct_rows<C>},
      {"Attention", make_attention<C>},
      {"AttentionGrad", make_attention_grad<C>},
      {"MatMul", make_mat_mul},
      {"MatMulGrad", make_mat_mul_grad},
  };
  return kEntries;
}

}  // namespace trainyard
