// Losses, and constants such as the gradient they begin with.
#include "kernels/elementwise.h"
#include "kernels/mse.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

std::unique_ptr<Kernel> make_softmax_xent(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const SoftmaxXentDims d = softmax_xent_dims(g, n);
  return make_kernel(
      [d, &team = context.team](const KernelArgs& a) {
        cpu::softmax_xent_forward(d, a.in<float>(0), a.in<int32_t>(1), a.out<float>(0),
                                  a.out<float>(1), a.workspace, team);
      },
      cpu::softmax_xent_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_softmax_xent_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = softmax_xent_dims(g, n), &team = context.team](const KernelArgs& a) {
    cpu::softmax_xent_backward(d, a.in<float>(0), a.in<int32_t>(1), a.in<float>(2), a.out<float>(0),
                               team);
  });
}

std::unique_ptr<Kernel> make_mse(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return make_kernel(
      [count, &team = context.team](const KernelArgs& a) {
        cpu::mse_forward(count, a.in<float>(0), a.in<float>(1), a.out<float>(0), a.workspace, team);
      },
      cpu::mse_workspace_bytes(count));
}

std::unique_ptr<Kernel> make_mse_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([count = input_info(g, n, 0).type.shape.elements(),
                      &team = context.team](const KernelArgs& a) {
    cpu::mse_backward(count, a.in<float>(0), a.in<float>(1), a.in<float>(2), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_constant(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  require_f32(n, y);
  return make_kernel([count = y.type.shape.elements(),
                      value = static_cast<float>(n.attributes.get_float("value", 0)),
                      &team = context.team](const KernelArgs& a) {
    cpu::fill(count, value, a.out<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_training_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_softmax_xent},
      {"SoftmaxCrossEntropyLossGrad", make_softmax_xent_grad},
      {"MeanSquaredError", make_mse},
      {"MeanSquaredErrorGrad", make_mse_grad},
      {"ConstantOfShape", make_constant},
  };
  return kEntries;
}

}  // namespace trainyard
