// Losses, and constants such as the gradient they begin with.
#include "kernels/elementwise.h"
#include "kernels/pointwise_loss.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

std::unique_ptr<Kernel> make_softmax_xent(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const SoftmaxXentParams p = softmax_xent_params(g, n);
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel(
        [p, &team = context.team](const KernelArgs& a) {
          cpu::softmax_xent_forward(p, a.in<float>(0), a.in<Target>(1), a.out<float>(0),
                                    a.out<float>(1), a.workspace, team);
        },
        cpu::softmax_xent_workspace_bytes(p));
  });
}

std::unique_ptr<Kernel> make_softmax_xent_grad(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel([p = softmax_xent_params(g, n), &team = context.team](const KernelArgs& a) {
      cpu::softmax_xent_backward(p, a.in<float>(0), a.in<Target>(1), a.in<float>(2),
                                 a.out<float>(0), team);
    });
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel(
        [f = loss_of<F>(n.attributes), count, &team = context.team](const KernelArgs& a) {
          cpu::pointwise_loss(f, count, a.in<float>(0), a.in<Target>(1), a.out<float>(0),
                              a.workspace, team);
        },
        cpu::pointwise_loss_workspace_bytes(count));
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss_grad(CpuContext& context, const Graph& g,
                                                 const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel(
        [f = loss_of<F>(n.attributes), count, &team = context.team](const KernelArgs& a) {
          cpu::pointwise_loss_grad(f, count, a.in<float>(0), a.in<Target>(1), a.in<float>(2),
                                   a.out<float>(0), team);
        });
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
      {"KullbackLeiblerDivergence", make_softmax_xent},
      {"SoftmaxCrossEntropyLossGrad", make_softmax_xent_grad},
#define TRAINYARD_ROW(F) \
  {#F, make_pointwise_loss<math::F>}, {#F "Grad", make_pointwise_loss_grad<math::F>},
      TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_ROW)
#undef TRAINYARD_ROW
          {"ConstantOfShape", make_constant},
  };
  return kEntries;
}

}  // namespace trainyard
