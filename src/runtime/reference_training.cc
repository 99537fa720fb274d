// Losses, and constants such as the gradient they begin with.
#include "kernels/elementwise.h"
#include "kernels/pointwise_loss.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_softmax_xent(ReferenceContext&, const Graph& g, const Node& n) {
  const SoftmaxXentParams p = softmax_xent_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([p](const KernelArgs& a) {
        reference::softmax_xent_forward(p, a.in<T>(0), a.in<Target>(1), a.out<T>(0), a.out<T>(1));
      });
    });
  });
}

std::unique_ptr<Kernel> make_softmax_xent_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const SoftmaxXentParams p = softmax_xent_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([p](const KernelArgs& a) {
        reference::softmax_xent_backward(p, a.in<T>(0), a.in<Target>(1), a.in<T>(2), a.out<T>(0));
      });
    });
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = input_info(g, n, 0).type;
  const F f = loss_of<F>(n.attributes);
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([f, count = type.shape.elements()](const KernelArgs& a) {
        reference::pointwise_loss(f, count, a.in<T>(0), a.in<Target>(1), a.out<T>(0));
      });
    });
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = input_info(g, n, 0).type;
  const F f = loss_of<F>(n.attributes);
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([f, count = type.shape.elements()](const KernelArgs& a) {
        reference::pointwise_loss_grad(f, count, a.in<T>(0), a.in<Target>(1), a.in<T>(2),
                                       a.out<T>(0));
      });
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
