// Losses, and constants such as the gradient they begin with.
#include "kernels/elementwise.h"
#include "kernels/mse.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_softmax_xent(ReferenceContext&, const Graph& g, const Node& n) {
  const SoftmaxXentDims d = softmax_xent_dims(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::softmax_xent_forward(d, a.in<T>(0), a.in<int32_t>(1), a.out<T>(0), a.out<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_softmax_xent_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const SoftmaxXentDims d = softmax_xent_dims(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::softmax_xent_backward(d, a.in<T>(0), a.in<int32_t>(1), a.in<T>(2), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_mse(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = input_info(g, n, 0).type;
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements()](const KernelArgs& a) {
      reference::mse_forward(count, a.in<T>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_mse_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = input_info(g, n, 0).type;
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements()](const KernelArgs& a) {
      reference::mse_backward(count, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_constant(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = output_info(g, n, 0).type;
  const double value = n.attributes.get_float("value", 0);
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements(), value](const KernelArgs& a) {
      reference::fill(count, static_cast<T>(value), a.out<T>(0));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_training_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_softmax_xent},
      {"SoftmaxCrossEntropyLossGrad", make_softmax_xent_grad},
      {"MeanSquaredError", make_mse},
      {"MeanSquaredErrorGrad", make_mse_grad},
      {"ConstantOfShape", make_constant},
  };
  return kEntries;
}

}  // namespace trainyard
