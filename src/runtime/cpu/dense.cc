#include <algorithm>
#include <vector>

#include "kernels/cpu/stored.h"
#include "kernels/gemm.h"
#include "kernels/head_loss.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

cpu::Stored stored_as(const TensorInfo& t) {
  return t.is_f16() ? cpu::Stored::kF16 : t.is_bf16() ? cpu::Stored::kBf16 : cpu::Stored::kF32;
}

bool is_bf16(const Graph& g, TensorId id) { return id != kNoTensor && g.tensor(id).is_bf16(); }
bool is_half(const Graph& g, TensorId id) { return id != kNoTensor && g.tensor(id).is_half(); }

/// Returns whether a product is large enough for its operands to be multiplied in bfloat16. Smaller
/// ones are converted to floats, which takes no time.
bool is_large(const Graph& g, const Node& n) {
  constexpr int64_t kProductsMin = int64_t{1} << 20;
  const GemmDims d = gemm_dims(g, n);
  return d.N * d.K * d.F >= kProductsMin;
}

/// Returns whether the program continues texts: it reads kept keys and values.
bool generates(const Graph& g) {
  return std::ranges::any_of(g.tensors(),
                             [](const TensorInfo& t) { return t.role == Role::kCache; });
}

/// Returns the form of Gemm, or of GemmAdd: bfloat16 if both factors are stored so and the CPU
/// multiplies such numbers; else w is read in 16 bits if only it and b are stored so. Other
/// programs than those that generate keep oneDNN's order of sums for few rows, and with it their
/// bits.
cpu::GemmForm forward_form(const Graph& g, const Node& n) {
  cpu::GemmForm form;
  const bool adds = has_input(n, 3);
  const TensorId x = n.inputs[0], w = n.inputs[1], y = n.outputs[0];
  const bool is_f16 = g.tensor(y).is_f16() || (adds && is_half(g, y) != is_half(g, n.inputs[3]));
  if (is_bf16(g, x) && is_bf16(g, w) && !is_f16 && cpu::multiplies_bf16() && is_large(g, n)) {
    return {cpu::Stored::kBf16, true, is_bf16(g, y)};
  }
  const bool others = is_half(g, x) || is_half(g, y) || (adds && is_half(g, n.inputs[3]));
  if (others) return form;
  form.weight = stored_as(g.tensor(w));
  form.few_rows = gemm_dims(g, n).N <= cpu::kFewRowsMax && generates(g);
  return form;
}

/// Returns the form of GemmGrad, or of GemmGradAdd, in the same way.
cpu::GemmForm backward_form(const Graph& g, const Node& n) {
  cpu::GemmForm form;
  const bool adds = has_input(n, 3);
  const TensorId x = n.inputs[0], w = n.inputs[1], dy = n.inputs[2];
  const bool dx = has_output(n, 0), dw = has_output(n, 1), db = has_output(n, 2);
  const bool is_f16 = dx && (g.tensor(n.outputs[0]).is_f16() ||
                             (adds && is_half(g, n.outputs[0]) != is_half(g, n.inputs[3])));
  const bool are_bf16 = is_bf16(g, dy) && (!dx || is_bf16(g, w)) && (!dw || is_bf16(g, x));
  if (are_bf16 && !db && !is_f16 && cpu::multiplies_bf16() && is_large(g, n)) {
    return {cpu::Stored::kBf16, true, dx && is_bf16(g, n.outputs[0])};
  }
  const bool others = is_half(g, x) || is_half(g, dy) || (dx && is_half(g, n.outputs[0])) ||
                      (adds && is_half(g, n.inputs[3]));
  if (!others) form.weight = stored_as(g.tensor(w));
  return form;
}

/// Gemm and, with a fourth input, GemmAdd.
class GemmKernel final : public Kernel {
 public:
  GemmKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)),
        form_(forward_form(g, n)),
        added_bytes_(gemm_dims(g, n).adds ? output_info(g, n, 0).stored_bytes() : 0),
        gemm_(gemm_dims(g, n), bias_, context.team, form_) {
    if (!accepts_stored_types() || !bias_ || !is_half(g, n.inputs[2])) return;
    bias_stored_ = stored_as(input_info(g, n, 2));
    wide_bias_.resize(static_cast<size_t>(gemm_dims(g, n).K));
  }
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  bool accepts_stored_types() const override { return form_.weight != cpu::Stored::kF32; }
  void run(const KernelArgs& a) override {
    const float* b = bias_ ? a.in<float>(2) : nullptr;
    if (!wide_bias_.empty()) {
      cpu::widen_from(bias_stored_, std::ssize(wide_bias_), a.inputs[2], wide_bias_.data());
      b = wide_bias_.data();
    }
    if (added_bytes_ > 0) begin_sum(a, added_bytes_);
    gemm_.run(a.inputs[0], a.inputs[1], b, a.outputs[0], a.workspace);
  }

 private:
  bool bias_;
  cpu::GemmForm form_;
  int64_t added_bytes_;  // of the tensor to which the product is added
  cpu::GemmForward gemm_;
  cpu::Stored bias_stored_ = cpu::Stored::kF32;
  std::vector<float> wide_bias_;
};

/// GemmGrad and, with a fourth input, GemmGradAdd.
class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : form_(backward_form(g, n)),
        added_bytes_(gemm_dims(g, n).adds && has_output(n, 0) ? output_info(g, n, 0).stored_bytes()
                                                              : 0),
        gemm_(gemm_dims(g, n), has_output(n, 0), has_output(n, 1), context.team, form_) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  bool accepts_stored_types() const override { return form_.weight != cpu::Stored::kF32; }
  void run(const KernelArgs& a) override {
    if (added_bytes_ > 0) begin_sum(a, added_bytes_);
    gemm_.run(a.inputs[0], a.inputs[1], a.inputs[2], a.outputs[0], a.out<float>(1), a.out<float>(2),
              a.workspace);
  }

 private:
  cpu::GemmForm form_;
  int64_t added_bytes_;
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
