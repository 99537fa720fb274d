// src/runtime/common/loss_kernels.h: losses, and constants such as the initial gradient of the
// loss, for every backend (adapter.h).
#pragma once

#include "kernels/elementwise.h"
#include "kernels/pointwise_loss.h"
#include "kernels/sampled_xent.h"
#include "kernels/softmax_xent.h"
#include "kernels/split_xent.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/op_params.h"

namespace trainyard {

/// Calls f(Target()) with the type of input 1, the target of a loss or its gradient: int32_t for
/// class labels, otherwise T, the type of the predictions (also for class probabilities).
template <typename T, typename Function>
std::unique_ptr<Kernel> with_target_type(const Graph& g, const Node& n, const Function& f) {
  return input_info(g, n, 1).type.dtype == DType::kI32 ? f(int32_t()) : f(T());
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_softmax_xent(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      const kernels::SoftmaxXentParams p = softmax_xent_params(g, n);
      return make_kernel(
          [o, p](const KernelArgs& a) {
            const kernels::SoftmaxXentOperands<typename O::Type, Target> operands{
                .z = o.number(a, 0),
                .target = a.in<Target>(1),
                .loss = a.out<T>(0),
                .prob = a.out<T>(1)};
            softmax_xent_forward(p, operands, o.run(a));
          },
          kWorkspaceBytes(p));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_softmax_xent_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([o, p = softmax_xent_params(g, n)](const KernelArgs& a) {
        const kernels::SoftmaxXentGradOperands<typename O::Type, Target> operands{
            .prob = o.number(a, 0),
            .target = a.in<Target>(1),
            .dloss = o.number(a, 2),
            .dz = a.out<T>(0)};
        softmax_xent_backward(p, operands, o.run(a));
      });
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_class_softmax(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return make_kernel([o, p = split_xent_params(g, n)](const KernelArgs& a) {
      const kernels::ClassSoftmaxOperands<typename O::Type> operands{.z = o.number(a, 0),
                                                                     .label = a.in<int32_t>(1),
                                                                     .statistics = a.out<T>(0),
                                                                     .q = a.out<T>(1)};
      class_softmax(p, operands, o.run(a));
    });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_split_xent(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    const kernels::SplitXentParams p = split_xent_params(g, n);
    return make_kernel(
        [o, p](const KernelArgs& a) {
          const kernels::SplitXentOperands<typename O::Type> operands{.q = o.number(a, 0),
                                                                      .label = a.in<int32_t>(1),
                                                                      .statistics = o.number(a, 2),
                                                                      .loss = a.out<T>(0),
                                                                      .prob = a.out<T>(1)};
          split_xent_forward(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_split_xent_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return make_kernel([o, p = split_xent_params(g, n)](const KernelArgs& a) {
      const kernels::SplitXentGradOperands<typename O::Type> operands{.prob = o.number(a, 0),
                                                                      .label = a.in<int32_t>(1),
                                                                      .dloss = o.number(a, 2),
                                                                      .dz = a.out<T>(0)};
      split_xent_backward(p, operands, o.run(a));
    });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_sample_classes(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, output_info(g, n, 2), [&]<typename O>(O o) {
    const kernels::SampleClassesParams p = sample_classes_params(g, n);
    // Without input 2 there are no labels of other ranks.
    return make_kernel(
        [o, p, counted = has_input(n, 2) ? size_t{2} : size_t{0},
         keeps = has_input(n, 3)](const KernelArgs& a) {
          const kernels::SampleClassesOperands<typename O::Type> operands{
              .label = a.in<int32_t>(0),
              .counted = a.in<int32_t>(counted),
              .step = a.in<int64_t>(1),
              .classes = a.out<int32_t>(0),
              .position = a.out<int32_t>(1),
              .log_expected = a.out<typename O::Number>(2),
              .micro_step = keeps ? a.in<int64_t>(4) : nullptr,
              .kept = keeps ? a.mut<int32_t>(0) : nullptr};
          sample_classes(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_take_rows(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& table = input_info(g, n, 0);
  return with_operands(context, g, n, table, [&](auto o) {
    return make_kernel(
        [o, d = table_rows(table.type.shape, input_info(g, n, 1).type.shape)](const KernelArgs& a) {
          take_rows(d, o.in(a, 0), a.in<int32_t>(1), o.out(a, 0), o.run(a));
        });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_sampled_xent(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    const kernels::SampledXentParams p = sampled_xent_params(g, n);
    return make_kernel(
        [o, p](const KernelArgs& a) {
          const kernels::SampledXentOperands<typename O::Type> operands{
              .z = o.number(a, 0),
              .position = a.in<int32_t>(1),
              .log_expected = o.number(a, 2),
              .loss = a.out<T>(0),
              .prob = a.out<T>(1)};
          sampled_xent_forward(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_sampled_xent_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    const kernels::SampledXentParams p = sampled_xent_params(g, n);
    return make_kernel(
        [o, p](const KernelArgs& a) {
          const kernels::SampledXentGradOperands<typename O::Type> operands{
              .prob = o.number(a, 0),
              .position = a.in<int32_t>(1),
              .dloss = o.number(a, 2),
              .dz = a.out<T>(0)};
          sampled_xent_backward(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

/// Returns the loss F of kernels/math/losses.h with its members set from the attributes of the same
/// names.
template <typename F>
F loss_of(const Attributes& attributes) {
  F f;
  if constexpr (requires { f.delta; }) f.delta = attributes.get_float("delta", f.delta);
  if constexpr (requires { f.pos_weight; }) {
    f.pos_weight = attributes.get_float("pos_weight", f.pos_weight);
  }
  return f;
}

template <typename F, typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_pointwise_loss(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = input_info(g, n, 0);
  return with_operands(context, g, n, y, [&]<typename O>(O o) {
    using T = typename O::Number;
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      const int64_t count = y.type.shape.elements();
      return make_kernel(
          [o, f = loss_of<F>(n.attributes), count](const KernelArgs& a) {
            const kernels::PointwiseLossOperands<typename O::Type, Target> operands{
                .y = o.number(a, 0), .t = a.in<Target>(1), .loss = a.out<T>(0)};
            pointwise_loss(f, count, operands, o.run(a));
          },
          kWorkspaceBytes(count));
    });
  });
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_pointwise_loss_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = input_info(g, n, 0);
  return with_operands(context, g, n, y, [&]<typename O>(O o) {
    using T = typename O::Number;
    return with_target_type<T>(g, n, [&]<typename Target>(Target) {
      return make_kernel([o, f = loss_of<F>(n.attributes),
                          count = y.type.shape.elements()](const KernelArgs& a) {
        const kernels::PointwiseLossGradOperands<typename O::Type, Target> operands{
            .y = o.number(a, 0), .t = a.in<Target>(1), .dloss = o.number(a, 2), .dy = a.out<T>(0)};
        pointwise_loss_grad(f, count, operands, o.run(a));
      });
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_constant(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  return with_operands(context, g, n, y, [&]<typename O>(O o) {
    using T = typename O::Number;
    return make_kernel([o, count = y.type.shape.elements(),
                        value = static_cast<T>(n.attributes.get_float("value", 0))](
                           const KernelArgs& a) { fill(count, value, o.out(a, 0), o.run(a)); });
  });
}

/// Returns the table entries that both host backends share, because these kernels need no
/// workspace.
template <typename Context>
std::span<const KernelEntry<Context>> host_training_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"SoftmaxCrossEntropyLossGrad", make_softmax_xent_grad<C>},
      {"ClassSoftmax", make_class_softmax<C>},
      {"SplitSoftmaxCrossEntropyLossGrad", make_split_xent_grad<C>},
      {"TakeRows", make_take_rows<C>},
      {"SampledSoftmaxCrossEntropyLossGrad", make_sampled_xent_grad<C>},
      {"ConstantOfShape", make_constant<C>},
  };
  return kEntries;
}

}  // namespace trainyard
