// src/runtime/box_kernels.h: kernels that walk boxes: movement, arithmetic with broadcasting,
// reductions. What they are told about a node is the same for every backend, so the makers stand
// here once; a backend brings its loops (`with_loops`) and lists the table.
//
//   with_loops(context, graph, node, tensor, f) calls f(loops), for a tensor that says what the
//   backend computes in. Loops are copied into the kernel; in(args, i) and out(args, i) are a
//   node's operands as the loops take them: anything like a pointer. What loops need besides, they
//   say: the workspace of a reduction, and what they make of a resampling when it is prepared.
#pragma once

#include "kernels/arithmetic.h"
#include "src/ops/concat.h"
#include "src/ops/reduce.h"
#include "src/ops/slice.h"
#include "src/ops/transpose.h"
#include "src/runtime/boxes.h"
#include "src/runtime/kernel_table.h"
#include "src/runtime/resampling.h"

namespace trainyard {

/// What loops on the host have in common; `Loops` brings copy and arithmetic.
template <typename Loops, typename T>
struct HostOperands {
  const T* in(const KernelArgs& a, size_t i) const { return a.in<T>(i); }
  T* out(const KernelArgs& a, size_t i) const { return a.out<T>(i); }
  int64_t reduce_workspace_bytes(const kernels::ReduceParams&) const { return 0; }
  int64_t reduce_grad_workspace_bytes(const kernels::ReduceParams&) const { return 0; }
  kernels::ResampleParams prepared(kernels::ResampleParams p) const { return p; }
  /// y[box] = 0
  void zero(kernels::Box<2> box, T* y) const {
    static constexpr T kZero = 0;
    for (int k = 0; k < box.rank; ++k) box.stride[k][0] = 0;
    static_cast<const Loops&>(*this).copy(box, &kZero, y);
  }
  /// y[box] = factor * x[box]
  void scale(const kernels::Box<2>& box, double factor, const T* x, T* y) const {
    kernels::Box<3> with_factor;
    for (int k = 0; k < box.rank; ++k) {
      with_factor.append(box.size[k], {box.stride[k][0], 0, box.stride[k][1]});
    }
    const auto by = static_cast<T>(factor);
    static_cast<const Loops&>(*this).template arithmetic<math::Mul>(with_factor, x, &by, y);
  }
};

template <typename Context>
std::unique_ptr<Kernel> make_transpose(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const auto perm = transpose_perm(n.attributes, x.type.shape.rank());
  const kernels::Box<2> box = transpose_box(x, output_info(g, n, 0), perm);
  return with_loops(context, g, n, x, [&](auto loops) {
    return make_kernel(
        [box, loops](const KernelArgs& a) { loops.copy(box, loops.in(a, 0), loops.out(a, 0)); });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_expand(Context& context, const Graph& g, const Node& n) {
  const kernels::Box<2> box = broadcast_box(input_info(g, n, 0), output_info(g, n, 0));
  return with_loops(context, g, n, output_info(g, n, 0), [&](auto loops) {
    return make_kernel(
        [box, loops](const KernelArgs& a) { loops.copy(box, loops.in(a, 0), loops.out(a, 0)); });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_slice(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const SliceBox cut = slice_box(n.attributes, x.type.shape);
  const PartBox part = part_box(x, output_info(g, n, 0), cut.first, cut.step, false);
  return with_loops(context, g, n, x, [&](auto loops) {
    return make_kernel([part, loops](const KernelArgs& a) {
      loops.copy(part.box, loops.in(a, 0) + part.offset, loops.out(a, 0));
    });
  });
}

/// One run of elements of y.
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
  return with_loops(context, g, n, dx, [&](auto loops) {
    return make_kernel([part, loops, count = dx.type.shape.elements()](const KernelArgs& a) {
      loops.zero(whole_box(count), loops.out(a, 0));
      loops.copy(part.box, loops.in(a, 0), loops.out(a, 0) + part.offset);
    });
  });
}

/// The parts of a tensor along an axis, in the order of a node's inputs or outputs. A part that is
/// left out has a box all the same: it may have to be zeroed.
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

/// Concat and SplitGrad: inputs side by side. A gradient that is left out is zero.
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
  return with_loops(context, g, n, y, [&](auto loops) {
    return make_kernel([parts = std::move(parts), loops](const KernelArgs& a) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto to = loops.out(a, 0) + parts[i].offset;
        if (const auto x = loops.in(a, i)) {
          loops.copy(parts[i].box, x, to);
        } else {
          loops.zero(parts[i].box, to);
        }
      }
    });
  });
}

/// Split and ConcatGrad: a tensor cut along an axis. Outputs may be left out.
template <typename Context>
std::unique_ptr<Kernel> make_cut(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const Shape& shape = x.type.shape;
  const int64_t axis = positive_axis(n.attributes.get_int("axis", 0), shape.rank());
  std::vector<PartBox> parts = parts_of(x, axis, split_sizes(n.attributes, shape[axis]), false);
  return with_loops(context, g, n, x, [&](auto loops) {
    return make_kernel([parts = std::move(parts), loops](const KernelArgs& a) {
      for (size_t i = 0; i < parts.size(); ++i) {
        if (const auto to = loops.out(a, i)) {
          loops.copy(parts[i].box, loops.in(a, 0) + parts[i].offset, to);
        }
      }
    });
  });
}

/// One run of elements, side by side in every operand.
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
  return with_loops(context, g, n, y, [&](auto loops) {
    if (is_span(box)) {
      return make_pointwise_kernel(box.elements(), [loops](const KernelArgs& a, int64_t count) {
        loops.template arithmetic<F>(span_box(count), loops.in(a, 0), loops.in(a, 1),
                                     loops.out(a, 0));
      });
    }
    return make_kernel([box, loops](const KernelArgs& a) {
      loops.template arithmetic<F>(box, loops.in(a, 0), loops.in(a, 1), loops.out(a, 0));
    });
  });
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_arithmetic_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 2);
  const kernels::Box<3> box = broadcast_box(input_info(g, n, 0), input_info(g, n, 1), dy);
  return with_loops(context, g, n, dy, [&](auto loops) {
    if (is_span(box)) {
      return make_pointwise_kernel(box.elements(), [loops](const KernelArgs& a, int64_t count) {
        loops.template arithmetic_grad<F>(span_box(count), loops.in(a, 0), loops.in(a, 1),
                                          loops.in(a, 2), loops.out(a, 0), loops.out(a, 1));
      });
    }
    return make_kernel([box, loops](const KernelArgs& a) {
      loops.template arithmetic_grad<F>(box, loops.in(a, 0), loops.in(a, 1), loops.in(a, 2),
                                        loops.out(a, 0), loops.out(a, 1));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_reduction(Context& context, const Graph& g, const Node& n,
                                       const TensorInfo& x, const kernels::ReduceParams& p) {
  return with_loops(context, g, n, x, [&](auto loops) {
    return make_kernel(
        [p, loops](const KernelArgs& a) {
          loops.reduce(p, loops.in(a, 0), loops.out(a, 0), a.workspace);
        },
        loops.reduce_workspace_bytes(p));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_sum_to(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 0);
  const TensorInfo& dx = output_info(g, n, 0);
  return make_reduction(context, g, n, dy,
                        reduce_params(dy, dx, broadcast_strides(dx, dy.type.shape)));
}

/// How many values of x make one of y.
inline double reduced_count(const TensorInfo& x, const TensorInfo& y) {
  return static_cast<double>(x.type.shape.elements() / y.type.shape.elements());
}

template <kernels::Reduction kHow, bool kMean, typename Context>
std::unique_ptr<Kernel> make_reduce(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const TensorInfo& y = output_info(g, n, 0);
  const int64_t rank = x.type.shape.rank();
  kernels::ReduceParams p =
      reduce_params(x, y, reduced_strides(y, rank, reduce_axes(n.attributes, rank)));
  p.how = kHow;
  if (kMean) p.factor = 1 / reduced_count(x, y);
  return make_reduction(context, g, n, x, p);
}

/// dx = dy / count, broadcast.
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
  return with_loops(context, g, n, dx, [&](auto loops) {
    return make_kernel([box, loops, factor](const KernelArgs& a) {
      loops.scale(box, factor, loops.in(a, 0), loops.out(a, 0));
    });
  });
}

template <kernels::Reduction kHow, typename Context>
std::unique_ptr<Kernel> make_reduce_value_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const TensorInfo& y = input_info(g, n, 1);
  const int64_t rank = x.type.shape.rank();
  kernels::ReduceParams p =
      reduce_params(x, y, reduced_strides(y, rank, reduce_axes(n.attributes, rank)));
  p.how = kHow;
  return with_loops(context, g, n, x, [&](auto loops) {
    return make_kernel(
        [p, loops](const KernelArgs& a) {
          loops.reduce_grad(p, loops.in(a, 0), loops.in(a, 1), loops.in(a, 2), loops.out(a, 0),
                            a.workspace);
        },
        loops.reduce_grad_workspace_bytes(p));
  });
}

/// Pad, Resize and their gradients.
template <auto kParams, typename Context>
std::unique_ptr<Kernel> make_resample(Context& context, const Graph& g, const Node& n) {
  return with_loops(context, g, n, output_info(g, n, 0), [&](auto loops) {
    return make_kernel([p = loops.prepared(kParams(g, n)), loops](const KernelArgs& a) {
      loops.resample(p, loops.in(a, 0), loops.out(a, 0));
    });
  });
}

/// The rows of a backend's table.
template <typename Context>
std::span<const KernelEntry<Context>> box_kernels() {
  using C = Context;
  using enum kernels::Reduction;
  static constexpr KernelEntry<C> kEntries[] = {
      {"Transpose", make_transpose<C>},
      {"Expand", make_expand<C>},
      {"SumTo", make_sum_to<C>},
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
              {"ReduceSum", make_reduce<kSum, false, C>},
      {"ReduceMean", make_reduce<kSum, true, C>},
      {"ReduceMin", make_reduce<kMin, false, C>},
      {"ReduceMax", make_reduce<kMax, false, C>},
      {"ReduceL2", make_reduce<kL2, false, C>},
      {"ReduceSumGrad", make_reduce_sum_grad<false, C>},
      {"ReduceMeanGrad", make_reduce_sum_grad<true, C>},
      {"ReduceMinGrad", make_reduce_value_grad<kMin, C>},
      {"ReduceMaxGrad", make_reduce_value_grad<kMax, C>},
      {"ReduceL2Grad", make_reduce_value_grad<kL2, C>},
  };
  return kEntries;
}

}  // namespace trainyard
