// src/runtime/cpu/sequences.cc: layer normalization, embeddings, attention and matrix products.
#include "src/runtime/common/op_params.h"
#include "src/runtime/common/sequence_kernels.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

int64_t attention_bytes(const CpuContext& context, const AttentionDims& d) {
  return cpu::attention_forward_workspace_bytes(d, context.team);
}
int64_t attention_grad_bytes(const CpuContext& context, const AttentionDims& d) {
  return cpu::attention_backward_workspace_bytes(d, context.team);
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

}  // namespace

std::span<const CpuEntry> cpu_sequence_kernels() {
  using C = CpuContext;
  using enum NormalizationForm;
  static constexpr CpuEntry kEntries[] = {
      {"LayerNormalization", make_layer_norm<kLayer, C>},
      {"LayerNormalizationGrad",
       make_layer_norm_grad<kLayer, C, cpu::layer_norm_backward_workspace_bytes>},
      {"RMSNormalization", make_layer_norm<kRms, C>},
      {"RMSNormalizationGrad",
       make_layer_norm_grad<kRms, C, cpu::layer_norm_backward_workspace_bytes>},
      {"DistinctRows", make_distinct_rows<C, cpu::distinct_rows_workspace_bytes>},
      {"Attention", make_attention<C, attention_bytes>},
      {"AttentionGrad", make_attention_grad<C, attention_grad_bytes>},
      {"MatMul", make<MatMulKernel>},
      {"MatMulGrad", make<MatMulGradKernel>},
  };
  return kEntries;
}

}  // namespace trainyard
