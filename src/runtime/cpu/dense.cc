#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/head_loss.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

/// Returns how the kernel of a product reads its weight, input 1: directly if it is the only tensor
/// that is stored in 16 bits.
cpu::Stored stored_weight(const Graph& g, const Node& n) {
  const auto is_half = [&](TensorId id) { return id != kNoTensor && g.tensor(id).is_half(); };
  const TensorInfo& w = input_info(g, n, 1);
  if (!w.is_half() || std::ranges::count_if(n.inputs, is_half) > 1 ||
      std::ranges::any_of(n.outputs, is_half)) {
    return cpu::Stored::kF32;
  }
  return w.is_f16() ? cpu::Stored::kF16 : cpu::Stored::kBf16;
}

/// Gemm and, with a fourth input, GemmAdd.
class GemmKernel final : public Kernel {
 public:
  GemmKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)),
        form_{stored_weight(g, n), has_input(n, 3)},
        gemm_(gemm_dims(g, n), bias_, context.team, form_) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  bool accepts_stored_types() const override { return form_.weight != cpu::Stored::kF32; }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.inputs[1], bias_ ? a.in<float>(2) : nullptr, a.out<float>(0),
              a.workspace, form_.adds ? a.in<float>(3) : nullptr);
  }

 private:
  bool bias_;
  cpu::GemmForm form_;
  cpu::GemmForward gemm_;
};

/// GemmGrad and, with a fourth input, GemmGradAdd.
class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : form_{stored_weight(g, n), has_input(n, 3)},
        gemm_(gemm_dims(g, n), has_output(n, 0), has_output(n, 1), context.team, form_) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  bool accepts_stored_types() const override { return form_.weight != cpu::Stored::kF32; }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.inputs[1], a.in<float>(2), a.out<float>(0), a.out<float>(1),
              a.out<float>(2), a.workspace, form_.adds ? a.in<float>(3) : nullptr);
  }

 private:
  cpu::GemmForm form_;
  cpu::GemmBackward gemm_;
};

/// A head that is not trained, with the loss of its scores.
class HeadLossOnCpu final : public Kernel {
 public:
  HeadLossOnCpu(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 4)),
        head_(head_loss_params(g, n), input_info(g, n, 0).type.shape[1], form_of(g, n),
              context.team) {}
  int64_t workspace_bytes() const override { return head_.workspace_bytes(); }
  bool accepts_stored_types() const override { return true; }
  void run(const KernelArgs& a) override {
    head_.run({.x = a.inputs[0],
               .w = a.inputs[1],
               .b = bias_ ? a.in<float>(4) : nullptr,
               .label = a.in<int32_t>(2),
               .dloss = a.in<float>(3),
               .loss = a.out<float>(0),
               .dx = a.outputs[1]},
              a.workspace);
  }

 private:
  static cpu::Stored stored_as(const TensorInfo& t) {
    return t.is_f16() ? cpu::Stored::kF16 : t.is_bf16() ? cpu::Stored::kBf16 : cpu::Stored::kF32;
  }
  static cpu::HeadLoss::Form form_of(const Graph& g, const Node& n) {
    return {stored_as(input_info(g, n, 0)), stored_as(input_info(g, n, 1)),
            has_output(n, 1) ? stored_as(output_info(g, n, 1)) : cpu::Stored::kF32,
            has_input(n, 4)};
  }

  bool bias_;
  cpu::HeadLoss head_;
};

}  // namespace

std::span<const CpuEntry> cpu_dense_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Gemm", make<GemmKernel>},
      {"GemmGrad", make<GemmGradKernel>},
      {"GemmSoftmaxCrossEntropyLoss", make<HeadLossOnCpu>},
      {"GemmAdd", make<GemmKernel>},
      {"GemmGradAdd", make<GemmGradKernel>},
  };
  return kEntries;
}

}  // namespace trainyard
