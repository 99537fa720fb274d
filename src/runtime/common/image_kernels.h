// src/runtime/common/image_kernels.h: pooling and normalization of images, for every backend
// (adapter.h), and the dimensions of convolutions.
#pragma once

#include "kernels/batch_norm.h"
#include "kernels/conv.h"
#include "kernels/conv_transpose.h"
#include "kernels/group_norm.h"
#include "kernels/pool.h"
#include "src/ops/conv_transpose.h"
#include "src/ops/window.h"
#include "src/runtime/common/adapter.h"

namespace trainyard {

/// Returns the strides of an activation in its planned layout; a tensor of rank 2 [N, C] is an
/// image of one pixel with C channels.
inline kernels::ImageStrides image_strides(const TensorInfo& t) {
  const kernels::ImageDims d = image_dims(t.type.shape);
  const bool channels_last = t.type.shape.rank() == 2 || t.layout == Layout::kChannelsLast;
  return channels_last ? kernels::ImageStrides::channels_last(d)
                       : kernels::ImageStrides::row_major(d);
}

/// `x` is the convolution's input, `w` its weights.
inline kernels::ConvDims conv_dims(const Node& node, const TensorInfo& x, const TensorInfo& w) {
  const Shape& s = w.type.shape;
  return {image_dims(x.type.shape), s[0], window_of(node.attributes, s[2], s[3]),
          node.attributes.get_int("group", 1)};
}

inline kernels::PoolDims pool_dims(const Node& node, const Shape& x) {
  return {image_dims(x), pool_window(node.attributes, x),
          node.attributes.get_int("count_include_pad", 0) == 1,
          node.attributes.get_int("relu", 0) == 1};
}

template <typename Context>
std::unique_ptr<Kernel> make_max_pool(Context& context, const Graph& g, const Node& n) {
  const TensorInfo &x = input_info(g, n, 0), &y = output_info(g, n, 0);
  return with_operands(context, g, n, x, [&]<typename O>(O o) {
    return make_kernel([o, d = pool_dims(n, x.type.shape),
                        s = kernels::PoolStrides{image_strides(x), image_strides(y)},
                        keeps = has_output(n, 1)](const KernelArgs& a) {
      const kernels::MaxPoolOperands<typename O::Type> operands{
          .x = o.in(a, 0), .y = o.out(a, 0), .winner = keeps ? a.out<uint8_t>(1) : nullptr};
      max_pool_forward(d, s, operands, o.run(a));
    });
  });
}

/// Needs kWorkspaceBytes(dims) if the winners were not kept.
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_max_pool_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo &dx = output_info(g, n, 0), &dy = input_info(g, n, 0);
  const kernels::PoolDims d = pool_dims(n, dx.type.shape);
  const bool kept = has_input(n, 2);
  return with_operands(context, g, n, dx, [&]<typename O>(O o) {
    return make_kernel(
        [o, d, s = kernels::PoolStrides{image_strides(dx), image_strides(dy)},
         kept](const KernelArgs& a) {
          const kernels::MaxPoolGradOperands<typename O::Type> operands{
              .x = o.in(a, 1),
              .winner = kept ? a.in<uint8_t>(2) : nullptr,
              .dy = o.in(a, 0),
              .dx = o.out(a, 0)};
          max_pool_backward(d, s, operands, o.run(a));
        },
        kept ? 0 : kWorkspaceBytes(d));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_average_pool(Context& context, const Graph& g, const Node& n) {
  const TensorInfo &x = input_info(g, n, 0), &y = output_info(g, n, 0);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [o, d = pool_dims(n, x.type.shape),
         s = kernels::PoolStrides{image_strides(x), image_strides(y)}](const KernelArgs& a) {
          average_pool_forward(d, s, o.in(a, 0), o.out(a, 0), o.run(a));
        });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_average_pool_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo &dx = output_info(g, n, 0), &dy = input_info(g, n, 0);
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_kernel(
        [o, d = pool_dims(n, dx.type.shape),
         s = kernels::PoolStrides{image_strides(dx), image_strides(dy)}](const KernelArgs& a) {
          average_pool_backward(d, s, o.in(a, 0), o.out(a, 0), o.run(a));
        });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_global_pool(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::ImageDims d = image_dims(x.type.shape);
  const kernels::ImageStrides s = image_strides(x);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [o, d, s](const KernelArgs& a) {
          global_average_pool_forward(d, s, o.in(a, 0), o.out(a, 0), o.run(a));
        },
        kWorkspaceBytes(d, s));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_global_pool_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_kernel(
        [o, d = image_dims(dx.type.shape), s = image_strides(dx)](const KernelArgs& a) {
          global_average_pool_backward(d, s, o.in(a, 0), o.out(a, 0), o.run(a));
        });
  });
}

inline kernels::BatchNormDims batch_norm_dims(const Node& node, const TensorInfo& x) {
  return {image_dims(x.type.shape), node.attributes.get_float("epsilon", 1e-5),
          node.attributes.get_float("momentum", 0.9)};
}

/// Makes the kernel of BatchNormalization, or with kRelu of BatchNormalizationRelu, whose input 5
/// is an optional residual.
template <bool kRelu, typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_batch_norm(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::BatchNormDims d = batch_norm_dims(n, x);
  const kernels::ImageStrides s = image_strides(x);
  const bool training = n.attributes.get_int("training_mode", 0) == 1;
  TRAINYARD_CHECK(!training || (has_output(n, 1) && has_output(n, 2)),
                  n.name + ": training writes saved_mean and saved_inv_std");
  return with_operands(context, g, n, x, [&]<typename O>(O o) -> std::unique_ptr<Kernel> {
    using T = typename O::Number;
    if (!training) {
      return make_kernel(
          [o, d, s](const KernelArgs& a) {
            const kernels::BatchNormInferenceOperands<typename O::Type> operands{
                .x = o.in(a, 0),
                .scale = o.number(a, 1),
                .b = o.number(a, 2),
                .running_mean = o.number(a, 3),
                .running_var = o.number(a, 4),
                .residual = o.in(a, 5),
                .relu = kRelu,
                .y = o.out(a, 0)};
            batch_norm_inference(d, s, operands, o.run(a));
          },
          kWorkspaceBytes(d, s));
    }
    return make_kernel(
        [o, d, s](const KernelArgs& a) {
          const kernels::BatchNormTrainingOperands<typename O::Type> operands{
              .x = o.in(a, 0),
              .scale = o.number(a, 1),
              .b = o.number(a, 2),
              .running_mean = a.mut<T>(0),
              .running_var = a.mut<T>(1),
              .residual = o.in(a, 5),
              .relu = kRelu,
              .y = o.out(a, 0),
              .mean = a.out<T>(1),
              .inv_std = a.out<T>(2)};
          batch_norm_training(d, s, operands, o.run(a));
        },
        kWorkspaceBytes(d, s));
  });
}

/// Makes the kernel of BatchNormalizationReplay. It needs kWorkspaceBytes(dims, strides).
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_batch_norm_replay(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::BatchNormDims d = batch_norm_dims(n, x);
  const kernels::ImageStrides s = image_strides(x);
  return with_operands(context, g, n, x, [&]<typename O>(O o) {
    return make_kernel(
        [o, d, s, relu = n.attributes.get_int("relu", 0) == 1](const KernelArgs& a) {
          const kernels::BatchNormReplayOperands<typename O::Type> operands{
              .x = o.in(a, 0),
              .scale = o.number(a, 1),
              .b = o.number(a, 2),
              .mean = o.number(a, 3),
              .inv_std = o.number(a, 4),
              .residual = o.in(a, 5),
              .relu = relu,
              .y = o.out(a, 0)};
          batch_norm_replay(d, s, operands, o.run(a));
        },
        kWorkspaceBytes(d, s));
  });
}

/// Inputs are x, scale, saved mean, saved inv_std and dy; with kRelu also b or y, and output 3 is
/// g.
template <bool kRelu, typename O>
kernels::BatchNormGradOperands<typename O::Type> batch_norm_grad_operands(const O& o,
                                                                          const KernelArgs& a) {
  using T = typename O::Number;
  return {.x = o.in(a, 0),
          .dy = o.in(a, 4),
          .scale = o.number(a, 1),
          .mean = o.number(a, 2),
          .inv_std = o.number(a, 3),
          .relu = kRelu,
          .b = o.number(a, 5),
          .y = o.in(a, 6),
          .dx = o.out(a, 0),
          .dscale = a.out<T>(1),
          .db = a.out<T>(2),
          .g = o.out(a, 3)};
}

/// Needs kWorkspaceBytes(dims, strides, bytes per element of the masked gradient). The last is 0
/// unless the gradient is masked and neither dx nor g can store it.
template <bool kRelu, typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_batch_norm_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::BatchNormDims d = batch_norm_dims(n, x);
  const kernels::ImageStrides s = image_strides(x);
  const bool masks = kRelu && !has_output(n, 0) && !has_output(n, 3);
  return with_operands(context, g, n, x, [&]<typename O>(O o) {
    return make_kernel(
        [o, d, s](const KernelArgs& a) {
          batch_norm_backward(d, s, batch_norm_grad_operands<kRelu>(o, a), o.run(a));
        },
        kWorkspaceBytes(d, s, masks ? int64_t{sizeof(typename O::Number)} : 0));
  });
}

/// Images keep their layout; tensors of another rank count as images of one row. `groups` comes
/// from the shape of the statistics.
inline kernels::GroupNormDims group_norm_dims(const Node& node, const TensorInfo& x,
                                              int64_t groups) {
  const Shape& s = x.type.shape;
  const kernels::ImageDims d =
      s.rank() == 4 ? image_dims(s)
                    : kernels::ImageDims{s[0], s[1], 1, s.elements() / (s[0] * s[1])};
  return {d, groups, node.attributes.get_float("epsilon", 1e-5)};
}
inline kernels::ImageStrides group_norm_strides(const TensorInfo& x,
                                                const kernels::GroupNormDims& d) {
  return x.type.shape.rank() == 4 ? image_strides(x) : kernels::ImageStrides::row_major(d.x);
}

/// Makes the kernel of GroupNormalization, or of InstanceNormalization, which has no num_groups:
/// each channel is a group.
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_group_norm(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::GroupNormDims d =
      group_norm_dims(n, x, n.attributes.get_int("num_groups", x.type.shape[1]));
  const kernels::ImageStrides s = group_norm_strides(x, d);
  return with_operands(context, g, n, x, [&]<typename O>(O o) {
    return make_kernel(
        [o, d, s](const KernelArgs& a) {
          using T = typename O::Number;
          const kernels::GroupNormOperands<typename O::Type> operands{.x = o.in(a, 0),
                                                                      .scale = o.number(a, 1),
                                                                      .b = o.number(a, 2),
                                                                      .y = o.out(a, 0),
                                                                      .mean = a.out<T>(1),
                                                                      .inv_std = a.out<T>(2)};
          group_norm_forward(d, s, operands, o.run(a));
        },
        kWorkspaceBytes(d, s));
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_group_norm_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::GroupNormDims d = group_norm_dims(n, x, input_info(g, n, 2).type.shape[1]);
  const kernels::ImageStrides s = group_norm_strides(x, d);
  return with_operands(context, g, n, x, [&]<typename O>(O o) {
    return make_kernel(
        [o, d, s](const KernelArgs& a) {
          using T = typename O::Number;
          const kernels::GroupNormGradOperands<typename O::Type> operands{.x = o.in(a, 0),
                                                                          .scale = o.number(a, 1),
                                                                          .mean = o.number(a, 2),
                                                                          .inv_std = o.number(a, 3),
                                                                          .dy = o.in(a, 4),
                                                                          .dx = o.out(a, 0),
                                                                          .dscale = a.out<T>(1),
                                                                          .db = a.out<T>(2)};
          group_norm_backward(d, s, operands, o.run(a));
        },
        kWorkspaceBytes(d, s));
  });
}

/// Returns the table entries that both host backends share, because these kernels need no
/// workspace.
template <typename Context>
std::span<const KernelEntry<Context>> host_image_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"MaxPool", make_max_pool<C>},
      {"MaxPoolGrad", make_max_pool_grad<C>},
      {"AveragePool", make_average_pool<C>},
      {"AveragePoolGrad", make_average_pool_grad<C>},
      {"GlobalAveragePool", make_global_pool<C>},
      {"GlobalAveragePoolGrad", make_global_pool_grad<C>},
  };
  return kEntries;
}

}  // namespace trainyard
