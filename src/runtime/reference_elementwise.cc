#include "kernels/activation.h"
#include "kernels/elementwise.h"
#include "kernels/layout.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

template <typename F>
std::unique_ptr<Kernel> make_activation(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = output_info(g, n, 0).type;
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements()](const KernelArgs& a) {
      reference::activation_forward<F>(count, a.in<T>(0), a.out<T>(0));
    });
  });
}

template <typename F>
std::unique_ptr<Kernel> make_activation_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = output_info(g, n, 0).type;
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements()](const KernelArgs& a) {
      reference::activation_backward<F>(count, a.in<T>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_gelu(ReferenceContext& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation<math::GeluTanh>(c, g, n)
             : make_activation<math::GeluErf>(c, g, n);
}

std::unique_ptr<Kernel> make_gelu_grad(ReferenceContext& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation_grad<math::GeluTanh>(c, g, n)
             : make_activation_grad<math::GeluErf>(c, g, n);
}

std::unique_ptr<Kernel> make_add(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = output_info(g, n, 0).type;
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements()](const KernelArgs& a) {
      reference::add(count, a.in<T>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_reorder(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  const ImageDims d = image_dims(y.type.shape);
  return with_float_type(y.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (y.layout == Layout::kChannelsLast) {
      return make_kernel(
          [d](const KernelArgs& a) { reference::nchw_to_nhwc(d, a.in<T>(0), a.out<T>(0)); });
    }
    return make_kernel(
        [d](const KernelArgs& a) { reference::nhwc_to_nchw(d, a.in<T>(0), a.out<T>(0)); });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_elementwise_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
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
