#include "kernels/activation.h"

#include <array>
#include <string>

#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

int64_t checked_count(const Graph& graph, const Node& node) {
  const TensorType& type = output_info(graph, node, 0).type;
  TRAINYARD_CHECK(type.dtype == DType::kF32, node.name + ": the cuda backend computes in F32");
  return type.shape.elements();
}

template <typename F>
std::unique_ptr<Kernel> make_forward(const Device& device, const Graph& graph, const Node& node) {
  return make_kernel([&device, count = checked_count(graph, node)](const KernelArgs& args) {
    kernels::cuda::activation_forward<F>(count, args.in<float>(0), args.out<float>(0),
                                         device.stream());
    check(cudaPeekAtLastError(), "launching an activation");
  });
}

template <typename F>
std::unique_ptr<Kernel> make_backward(const Device& device, const Graph& graph, const Node& node) {
  return make_kernel([&device, count = checked_count(graph, node)](const KernelArgs& args) {
    kernels::cuda::activation_backward<F>(count, args.in<float>(0), args.in<float>(1),
                                          args.out<float>(0), device.stream());
    check(cudaPeekAtLastError(), "launching an activation's gradient");
  });
}

bool is_tanh_form(const Node& node) {
  return node.attributes.get_string("approximate", "none") == "tanh";
}
std::unique_ptr<Kernel> make_gelu(const Device& device, const Graph& graph, const Node& node) {
  return is_tanh_form(node) ? make_forward<math::GeluTanh>(device, graph, node)
                            : make_forward<math::GeluErf>(device, graph, node);
}
std::unique_ptr<Kernel> make_gelu_grad(const Device& device, const Graph& graph, const Node& node) {
  return is_tanh_form(node) ? make_backward<math::GeluTanh>(device, graph, node)
                            : make_backward<math::GeluErf>(device, graph, node);
}

}  // namespace

std::span<const CudaEntry> activation_kernels() {
  static constexpr std::array<CudaEntry, 8> kTable = {{
      {"Relu", make_forward<math::Relu>},
      {"ReluGrad", make_backward<math::Relu>},
      {"Sigmoid", make_forward<math::Sigmoid>},
      {"SigmoidGrad", make_backward<math::Sigmoid>},
      {"Tanh", make_forward<math::Tanh>},
      {"TanhGrad", make_backward<math::Tanh>},
      {"Gelu", make_gelu},
      {"GeluGrad", make_gelu_grad},
  }};
  return kTable;
}

}  // namespace trainyard::cuda
