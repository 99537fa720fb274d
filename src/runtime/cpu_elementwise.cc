#include "kernels/activation.h"
#include "kernels/elementwise.h"
#include "kernels/layout.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

template <typename F>
std::unique_ptr<Kernel> make_activation(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  require_f32(n, y);
  return make_kernel([count = y.type.shape.elements(), &team = context.team](const KernelArgs& a) {
    cpu::activation_forward<F>(count, a.in<float>(0), a.out<float>(0), team);
  });
}

template <typename F>
std::unique_ptr<Kernel> make_activation_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  return make_kernel([count = dx.type.shape.elements(), &team = context.team](const KernelArgs& a) {
    cpu::activation_backward<F>(count, a.in<float>(0), a.in<float>(1), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_gelu(CpuContext& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation<math::GeluTanh>(c, g, n)
             : make_activation<math::GeluErf>(c, g, n);
}

std::unique_ptr<Kernel> make_gelu_grad(CpuContext& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation_grad<math::GeluTanh>(c, g, n)
             : make_activation_grad<math::GeluErf>(c, g, n);
}

std::unique_ptr<Kernel> make_add(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  require_f32(n, y);
  return make_kernel([count = y.type.shape.elements(), &team = context.team](const KernelArgs& a) {
    cpu::add(count, a.in<float>(0), a.in<float>(1), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_reorder(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  require_f32(n, y);
  const ImageDims d = image_dims(y.type.shape);
  if (y.layout == Layout::kChannelsLast) {
    return make_kernel([d, &team = context.team](const KernelArgs& a) {
      cpu::nchw_to_nhwc(d, a.in<float>(0), a.out<float>(0), team);
    });
  }
  return make_kernel([d, &team = context.team](const KernelArgs& a) {
    cpu::nhwc_to_nchw(d, a.in<float>(0), a.out<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_elementwise_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Relu", make_activation<math::Relu>},
      {"ReluGrad", make_activation_grad<math::Relu>},
      {"Sigmoid", make_activation<math::Sigmoid>},
      {"SigmoidGrad", make_activation_grad<math::Sigmoid>},
      {"Tanh", make_activation<math::Tanh>},
      {"TanhGrad", make_activation_grad<math::Tanh>},
      {"Gelu", make_gelu},
      {"GeluGrad", make_gelu_grad},
      {"Add", make_add},
      {"Reorder", make_reorder},
  };
  return kEntries;
}

}  // namespace trainyard
