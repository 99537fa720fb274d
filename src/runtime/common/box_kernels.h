// src/runtime/common/box_kernels.h: kernels that iterate over boxes (kernels/box.h), for every
// backend (adapter.h): movement, resampling, arithmetic with broadcasting, reductions.
//
// A backend may overload prepared(context, params) to convert the parameters of a resampling when
// it is prepared; its resample() then takes the result.
#pragma once

#include "kernels/arithmetic.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"
#include "src/ops/concat.h"
#include "src/ops/reduce.h"
#include "src/ops/slice.h"
#include "src/ops/transpose.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/boxes.h"
#include "src/runtime/common/resampling.h"

namespace trainyard {

template <typename Context>
std::unique_ptr<Kernel> make_transpose(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const auto perm = transpose_perm(n.attributes, x.type.shape.rank());
  const kernels::Box<2> box = transpose_box(x, output_info(g, n, 0), perm);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [box, o](const KernelArgs& a) { copy(box, o.in(a, 0), o.out(a, 0), o.run(a)); });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_expand(Context& context, const Graph& g, const Node& n) {
  const kernels::Box<2> box = broadcast_box(input_info(g, n, 0), output_info(g, n, 0));
  return with_operands(context, g, n, output_info(g, n, 0), [&](auto o) {
    return make_kernel(
        [box, o](const KernelArgs& a) { copy(box, o.in(a, 0), o.out(a, 0), o.run(a)); });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_slice(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const SliceBox cut = slice_box(n.attributes, x.type.shape);
  const PartBox part = part_box(x, output_info(g, n, 0), cut.first, cut.step, false);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel([part, o](const KernelArgs& a) {
      copy(part.box, o.in(a, 0) + part.offset, o.out(a, 0), o.run(a));
    });
  });
}

/// Returns a box of `count` contiguous elements of y.
inline kernels::Box<2> whole_box(int64_t count) {
  kernels::Box<2> box;
  box.append(count, {0, 1});
  return box;
}

template <typename Context>
std::unique_ptr<Kernel> make_slice_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const SliceBox cut = slice_box(n.attributes, dx.type.shape);
  const PartBox part = part_box(dx, input_info(g, n, 0), cut.first, cut.step, true);
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_kernel([part, o, count = dx.type.shape.elements()](const KernelArgs& a) {
      zero(whole_box(count), o.out(a, 0), o.run(a));
      copy(part.box, o.in(a, 0), o.out(a, 0) + part.offset, o.run(a));
    });
  });
}

/// Returns the parts of a tensor along an axis, in the order of a node's inputs or outputs. An
/// omitted part has a box too, since it may have to be zeroed.
inline std::vector<PartBox> parts_of(const TensorInfo& whole, int64_t axis,
                                     const std::vector<int64_t>& sizes, bool parts_are_read) {
  const auto rank = static_cast<size_t>(whole.type.shape.rank());
  std::vector<int64_t> first(rank, 0);
  const std::vector<int64_t> step(rank, 1);
  std::vector<PartBox> parts;
  TensorInfo part = whole;
  const auto at = static_cast<size_t>(positive_axis(axis, whole.type.shape.rank()));
  for (const int64_t size : sizes) {
    std::vector<int64_t> dims = whole.type.shape.dims();
    dims[at] = size;
    part.type.shape = Shape(std::move(dims));
    parts.push_back(part_box(whole, part, first, step, parts_are_read));
    first[at] += size;
  }
  return parts;
}

/// Makes the kernel of Concat and SplitGrad, which concatenates inputs along an axis. An omitted
/// gradient counts as zero.
template <typename Context>
std::unique_ptr<Kernel> make_join(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  const int64_t axis = n.attributes.get_int("axis", 0);
  std::vector<int64_t> sizes = n.attributes.get_ints("split", {});
  for (size_t i = sizes.size(); i < n.inputs.size(); ++i) {
    const Shape& x = input_info(g, n, i).type.shape;
    sizes.push_back(x[positive_axis(axis, x.rank())]);
  }
  std::vector<PartBox> parts = parts_of(y, axis, sizes, true);
  return with_operands(context, g, n, y, [&](auto o) {
    return make_kernel([parts = std::move(parts), o](const KernelArgs& a) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto to = o.out(a, 0) + parts[i].offset;
        if (const auto x = o.in(a, i)) {
          copy(parts[i].box, x, to, o.run(a));
        } else {
          zero(parts[i].box, to, o.run(a));
        }
      }
    });
  });
}

/// Makes the kernel of Split and ConcatGrad, which cuts a tensor along an axis. Outputs may be
/// omitted.
template <typename Context>
std::unique_ptr<Kernel> make_cut(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const Shape& shape = x.type.shape;
  const int64_t axis = positive_axis(n.attributes.get_int("axis", 0), shape.rank());
  std::vector<PartBox> parts = parts_of(x, axis, split_sizes(n.attributes, shape[axis]), false);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel([parts = std::move(parts), o](const KernelArgs& a) {
      for (size_t i = 0; i < parts.size(); ++i) {
        if (const auto to = o.out(a, i)) {
          copy(parts[i].box, o.in(a, 0) + parts[i].offset, to, o.run(a));
        }
      }
    });
  });
}

/// Returns whether the box is a run of elements that are contiguous in every operand.
inline bool is_span(const kernels::Box<3>& box) {
  return box.rank == 1 && box.stride[0] == kernels::Box<3>::Offsets{1, 1, 1};
}
inline kernels::Box<3> span_box(int64_t count) {
  kernels::Box<3> box;
  box.append(count, {1, 1, 1});
  return box;
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_arithmetic(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  const kernels::Box<3> box = broadcast_box(input_info(g, n, 0), input_info(g, n, 1), y);
  return with_operands(context, g, n, y, [&](auto o) {
    if (is_span(box)) {
      return make_pointwise_kernel(box.elements(), [o](const KernelArgs& a, int64_t count) {
        arithmetic<F>(span_box(count), o.in(a, 0), o.in(a, 1), o.out(a, 0), o.run(a));
      });
    }
    return make_kernel([box, o](const KernelArgs& a) {
      arithmetic<F>(box, o.in(a, 0), o.in(a, 1), o.out(a, 0), o.run(a));
    });
  });
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_arithmetic_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 2);
  const kernels::Box<3> box = broadcast_box(input_info(g, n, 0), input_info(g, n, 1), dy);
  return with_operands(context, g, n, dy, [&](auto o) {
    if (is_span(box)) {
      return make_pointwise_kernel(box.elements(), [o](const KernelArgs& a, int64_t count) {
        arithmetic_grad<F>(span_box(count), o.in(a, 0), o.in(a, 1), o.in(a, 2), o.out(a, 0),
                           o.out(a, 1), o.run(a));
      });
    }
    return make_kernel([box, o](const KernelArgs& a) {
      arithmetic_grad<F>(box, o.in(a, 0), o.in(a, 1), o.in(a, 2), o.out(a, 0), o.out(a, 1),
                         o.run(a));
    });
  });
}

template <auto kWorkspaceBytes, typename Context>
std::unique_ptr<Kernel> make_reduction(Context& context, const Graph& g, const Node& n,
                                       const TensorInfo& x, const kernels::ReduceParams& p) {
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [p, o](const KernelArgs& a) { reduce(p, o.in(a, 0), o.out(a, 0), o.run(a)); },
        kWorkspaceBytes(p));
  });
}

template <auto kWorkspaceBytes, typename Context>
std::unique_ptr<Kernel> make_sum_to(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 0);
  const TensorInfo& dx = output_info(g, n, 0);
  return make_reduction<kWorkspaceBytes>(
      context, g, n, dy, reduce_params(dy, dx, broadcast_strides(dx, dy.type.shape)));
}

/// Returns the number of elements of x that are reduced to one of y.
inline double reduced_count(const TensorInfo& x, const TensorInfo& y) {
  return static_cast<double>(x.type.shape.elements() / y.type.shape.elements());
}

template <kernels::Reduction kHow, bool kMean, auto kWorkspaceBytes, typename Context>
std::unique_ptr<Kernel> make_reduce(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const TensorInfo& y = output_info(g, n, 0);
  const int64_t rank = x.type.shape.rank();
  kernels::ReduceParams p =
      reduce_params(x, y, reduced_strides(y, rank, reduce_axes(n.attributes, rank)));
  p.how = kHow;
  if (kMean) p.factor = 1 / reduced_count(x, y);
  return make_reduction<kWorkspaceBytes>(context, g, n, x, p);
}

/// Makes the kernel of dx = dy * factor, broadcast to the shape of x; the factor is 1 / count for a
/// mean.
template <bool kMean, typename Context>
std::unique_ptr<Kernel> make_reduce_sum_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 0);
  const TensorInfo& dx = output_info(g, n, 0);
  const std::vector<int64_t>& size = dx.type.shape.dims();
  const auto rank = static_cast<int64_t>(size.size());
  const kernels::Box<2> box =
      make_box<2>(size, memory_order(dx),
                  {reduced_strides(dy, rank, reduce_axes(n.attributes, rank)), strides_of(dx)});
  const double factor = kMean ? 1 / reduced_count(dx, dy) : 1;
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_kernel([box, o, factor](const KernelArgs& a) {
      scale(box, factor, o.in(a, 0), o.out(a, 0), o.run(a));
    });
  });
}

template <kernels::Reduction kHow, auto kWorkspaceBytes, typename Context>
std::unique_ptr<Kernel> make_reduce_value_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const TensorInfo& y = input_info(g, n, 1);
  const int64_t rank = x.type.shape.rank();
  kernels::ReduceParams p =
      reduce_params(x, y, reduced_strides(y, rank, reduce_axes(n.attributes, rank)));
  p.how = kHow;
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [p, o](const KernelArgs& a) {
          reduce_grad(p, o.in(a, 0), o.in(a, 1), o.in(a, 2), o.out(a, 0), o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

/// By default a backend uses the parameters of a resampling unchanged.
template <typename Context>
kernels::ResampleParams prepared(Context&, kernels::ResampleParams p) {
  return p;
}

/// Returns the kernels of Pad, Resize and their gradients.
template <auto kParams, typename Context>
std::unique_ptr<Kernel> make_resample(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, output_info(g, n, 0), [&](auto o) {
    return make_kernel([p = prepared(context, kParams(g, n)), o](const KernelArgs& a) {
      resample(p, o.in(a, 0), o.out(a, 0), o.run(a));
    });
  });
}

/// Returns the table entries for a backend; kReduceBytes and kReduceGradBytes compute the workspace
/// of its reductions.
template <typename Context, auto kReduceBytes = kNoWorkspace, auto kReduceGradBytes = kNoWorkspace>
std::span<const KernelEntry<Context>> box_kernels() {
  using C = Context;
  using enum kernels::Reduction;
  static constexpr KernelEntry<C> kEntries[] = {
      {"Transpose", make_transpose<C>},
      {"Expand", make_expand<C>},
      {"SumTo", make_sum_to<kReduceBytes, C>},
      {"Slice", make_slice<C>},
      {"SliceGrad", make_slice_grad<C>},
      {"Concat", make_join<C>},
      {"SplitGrad", make_join<C>},
      {"Split", make_cut<C>},
      {"ConcatGrad", make_cut<C>},
      {"Pad", make_resample<pad_params, C>},
      {"PadGrad", make_resample<pad_grad_params, C>},
      {"Resize", make_resample<resize_params, C>},
      {"ResizeGrad", make_resample<resize_grad_params, C>},
#define TRAINYARD_ROW(F) {#F, make_arithmetic<math::F, C>},
      TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_ROW)
#undef TRAINYARD_ROW
#define TRAINYARD_ROW(F) {#F "Grad", make_arithmetic_grad<math::F, C>},
          TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_ROW)
#undef TRAINYARD_ROW
              {"ReduceSum", make_reduce<kSum, false, kReduceBytes, C>},
      {"ReduceMean", make_reduce<kSum, true, kReduceBytes, C>},
      {"ReduceMin", make_reduce<kMin, false, kReduceBytes, C>},
      {"ReduceMax", make_reduce<kMax, false, kReduceBytes, C>},
      {"ReduceL2", make_reduce<kL2, false, kReduceBytes, C>},
      {"ReduceSumGrad", make_reduce_sum_grad<false, C>},
      {"ReduceMeanGrad", make_reduce_sum_grad<true, C>},
      {"ReduceMinGrad", make_reduce_value_grad<kMin, kReduceGradBytes, C>},
      {"ReduceMaxGrad", make_reduce_value_grad<kMax, kReduceGradBytes, C>},
      {"ReduceL2Grad", make_reduce_value_grad<kL2, kReduceGradBytes, C>},
  };
  return kEntries;
}

}  // namespace trainyard
