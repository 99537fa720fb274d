// src/runtime/common/update_kernels.h: parameter updates and the preceding operations on gradients,
// for every backend (adapter.h).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/alignment.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"
#include "kernels/sampled_xent.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/op_params.h"

namespace trainyard {

/// Returns the number of elements that an update changes; 0 if the rank's shard is empty.
template <typename Params>
int64_t elements_of(const Params& p) {
  if constexpr (requires { p.count(); }) {
    return p.count();
  } else {
    return p.count;
  }
}

// Each of the following structs is a kind of update: it derives parameters from a node and operands
// from arguments, and runs the kernel. Backends that update many tensors in one launch use these
// structs too.

struct Sgd {
  static constexpr auto params = sgd_params;
  template <typename O>
  static kernels::SgdOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    using T = typename O::Number;
    return {.g = o.in(a, 1),
            .learning_rate = a.in<float>(2),
            .p = a.mut<T>(0),
            .v = a.mut<T>(1),
            .copy = o.updated(a, 5, 2)};
  }
  static void run(const auto&... args) { sgd(args...); }
};

struct Adam {
  static constexpr auto params = adam_params;
  template <typename O>
  static kernels::AdamOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    using T = typename O::Number;
    return {.g = o.in(a, 1),
            .learning_rate = a.in<float>(2),
            .step = a.in<int64_t>(3),
            .p = a.mut<T>(0),
            .m = a.mut<T>(1),
            .v = a.mut<T>(2),
            .copy = o.updated(a, 7, 3)};
  }
  static void run(const auto&... args) { adam(args...); }
};

struct Rmsprop {
  static constexpr auto params = rmsprop_params;
  template <typename O>
  static kernels::RmspropOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    using T = typename O::Number;
    return {.g = o.in(a, 1),
            .learning_rate = a.in<float>(2),
            .p = a.mut<T>(0),
            .square = a.mut<T>(1),
            .a = a.mut<T>(2),
            .b = a.mut<T>(3),
            .copy = o.updated(a, 7, 4)};
  }
  static void run(const auto&... args) { rmsprop(args...); }
};

struct Lion {
  static constexpr auto params = lion_params;
  template <typename O>
  static kernels::LionOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    using T = typename O::Number;
    return {.g = o.in(a, 1),
            .learning_rate = a.in<float>(2),
            .p = a.mut<T>(0),
            .m = a.mut<T>(1),
            .copy = o.updated(a, 5, 2)};
  }
  static void run(const auto&... args) { lion(args...); }
};

struct Adafactor {
  static constexpr auto params = adafactor_params;
  template <typename O>
  static kernels::AdafactorOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    using T = typename O::Number;
    return {.g = o.in(a, 1),
            .learning_rate = a.in<float>(2),
            .step = a.in<int64_t>(3),
            .p = a.mut<T>(0),
            .row = a.mut<T>(2),
            .column = a.mut<T>(1)};
  }
  static void run(const auto&... args) { adafactor(args...); }
};

struct MovingAverage {
  static constexpr auto params = moving_average_params;
  template <typename O>
  static kernels::MovingAverageOperands<typename O::Type> operands(const O& o,
                                                                   const KernelArgs& a) {
    return {.p = o.number(a, 1), .step = a.in<int64_t>(2), .average = a.mut<typename O::Number>(0)};
  }
  static void run(const auto&... args) { moving_average(args...); }
};

struct AccumulateGradient {
  static constexpr auto params = accumulate_gradient_params;
  template <typename O>
  static kernels::AccumulateGradientOperands<typename O::Type> operands(const O& o,
                                                                        const KernelArgs& a) {
    return {.g = o.in(a, 1), .micro_step = a.in<int64_t>(2), .sum = a.mut<typename O::Number>(0)};
  }
  static void run(const auto&... args) { accumulate_gradient(args...); }
};

struct ClipGradient {
  static constexpr auto params = clip_gradient_params;
  template <typename O>
  static kernels::ClipGradientOperands<typename O::Type> operands(const O& o, const KernelArgs& a) {
    return {.g = o.in(a, 0), .scale = o.number(a, 1), .y = o.out(a, 0)};
  }
  static void run(const auto&... args) { clip_gradient(args...); }
};

/// Returns the operands of an update. If the node updates a shard, the parameter starts at its
/// element `first`; the gradient and the state are shards already.
template <typename Kind, typename O>
auto operands_from(int64_t first, const O& o, const KernelArgs& a) {
  auto operands = Kind::operands(o, a);
  if constexpr (requires { *operands.p = 0; }) {
    if (operands.p != nullptr) operands.p += first;
  }
  return operands;
}
inline int64_t first_updated(const Graph& g, const Node& n) {
  return n.attributes.find(kRanks) == nullptr ? 0 : updated_range(g, n).first;
}

/// Makes the kernel of an update of some rows of a parameter (updated_rows() in src/graph/op.h).
/// The rows of the parameter and its state are gathered in the workspace, updated there like a
/// whole parameter, and written back.
template <typename Kind, typename O>
std::unique_ptr<Kernel> make_rows_update(const O& o, const Graph& g, const Node& n, size_t rows) {
  using T = typename O::Number;
  const kernels::TableRows d =
      table_rows(input_info(g, n, 0).type.shape, input_info(g, n, rows).type.shape);
  const int64_t piece =
      round_up(d.count * d.width * static_cast<int64_t>(sizeof(T)), kCudaAlignment);
  int64_t pieces = 0;
  for (const int64_t i : n.op->mutated_inputs(n)) {
    pieces += has_input(n, static_cast<size_t>(i)) ? 1 : 0;
  }
  return make_kernel(
      [o, d, rows, piece, p = Kind::params(g, n)](const KernelArgs& a) {
        const auto* index = a.in<int32_t>(rows);
        KernelArgs taken = a;
        auto* at = static_cast<std::byte*>(a.workspace);
        for (size_t i = 0; i < a.mutated.size(); ++i) {
          if (a.mutated[i] == nullptr) continue;
          taken.mutated[i] = at;
          at += piece;
          take_rows(d, kernels::InOf<typename O::Type>{a.mut<T>(i)}, index,
                    kernels::OutOf<typename O::Type>{taken.mut<T>(i)}, o.run(a));
        }
        Kind::run(p, Kind::operands(o, taken), o.run(a));
        for (size_t i = 0; i < a.mutated.size(); ++i) {
          if (a.mutated[i] == nullptr) continue;
          put_rows(d, kernels::InOf<typename O::Type>{taken.mut<T>(i)}, index,
                   kernels::OutOf<typename O::Type>{a.mut<T>(i)}, o.run(a));
        }
      },
      pieces * piece);
}

template <typename Kind, typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_update(Context& context, const Graph& g, const Node& n) {
  if (const auto rows = updated_rows(g, n)) {
    return with_operands(context, g, n, input_info(g, n, 0),
                         [&](auto o) { return make_rows_update<Kind>(o, g, n, *rows); });
  }
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    const auto p = Kind::params(g, n);
    return make_kernel(
        [o, p, first = first_updated(g, n), count = elements_of(p)](const KernelArgs& a) {
          if (count > 0) Kind::run(p, operands_from<Kind>(first, o, a), o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_gradient_norm(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    const kernels::GradientNormParams p = gradient_norm_params(g, n);
    const size_t count = p.counts.size();
    return make_kernel(
        [o, p, gradients = std::vector<kernels::InOf<typename O::Type>>(count)](
            const KernelArgs& a) mutable {
          for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = o.in(a, i);
          const kernels::GradientNormOperands<typename O::Type> operands{
              .g = gradients,
              .loss_scale = p.scaled ? o.number(a, gradients.size()) : nullptr,
              .norm = a.out<T>(0),
              .scale = a.out<T>(1)};
          gradient_norm(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_gradient_squares(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    const kernels::GradientSquaresParams p = gradient_squares_params(g, n);
    return make_kernel(
        [o, p, firsts = n.attributes.get_ints("firsts", std::vector<int64_t>(p.counts.size())),
         gradients = std::vector<kernels::InOf<typename O::Type>>(p.counts.size())](
            const KernelArgs& a) mutable {
          for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = o.in(a, i) + firsts[i];
          const kernels::GradientSquaresOperands<typename O::Type> operands{
              .g = gradients, .squares = a.out<double>(0)};
          gradient_squares(p, operands, o.run(a));
        },
        kWorkspaceBytes(full_squares_params(g, n)));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_norm_of_squares(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, output_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return make_kernel([o, p = norm_of_squares_params(g, n)](const KernelArgs& a) {
      const kernels::NormOfSquaresOperands<typename O::Type> operands{.mean = a.in<double>(0),
                                                                      .loss_scale = o.number(a, 1),
                                                                      .norm = a.out<T>(0),
                                                                      .scale = a.out<T>(1)};
      norm_of_squares(p, operands, o.run(a));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_loss_scale(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    using T = typename O::Number;
    return make_kernel([o, s = loss_scaling(n)](const KernelArgs& a) {
      const kernels::LossScale<T> kept{
          .scale = a.mut<T>(0), .good_steps = a.mut<int64_t>(1), .updates = a.mut<int64_t>(2)};
      const kernels::LossScaleStep<T> step{
          .learning_rate = a.out<float>(0), .step = a.out<int64_t>(1), .scale = a.out<T>(2)};
      loss_scale_update(s, o.number(a, 3), a.in<float>(4), kept, step, o.run(a));
    });
  });
}

/// The table entries for a backend, with functions for the workspace of its kernels. Muon is not
/// included, because each backend computes its products differently.
template <typename Context, auto kNormBytes = kNoWorkspace, auto kSquaresBytes = kNoWorkspace,
          auto kAdafactorBytes = kNoWorkspace>
std::span<const KernelEntry<Context>> update_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"SgdUpdate", make_update<Sgd, C>},
      {"AdamUpdate", make_update<Adam, C>},
      {"AdamWUpdate", make_update<Adam, C>},
      {"RmspropUpdate", make_update<Rmsprop, C>},
      {"LionUpdate", make_update<Lion, C>},
      {"AdafactorUpdate", make_update<Adafactor, C, kAdafactorBytes>},
      {"MovingAverageUpdate", make_update<MovingAverage, C>},
      {"AccumulateGradient", make_update<AccumulateGradient, C>},
      {"ClipGradient", make_update<ClipGradient, C>},
      {"GradientNorm", make_gradient_norm<C, kNormBytes>},
      {"GradientSquares", make_gradient_squares<C, kSquaresBytes>},
      {"NormOfSquares", make_norm_of_squares<C>},
      {"LossScaleUpdate", make_loss_scale<C>},
  };
  return kEntries;
}

}  // namespace trainyard
