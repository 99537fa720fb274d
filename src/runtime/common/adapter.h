// src/runtime/common/adapter.h: kernels whose preparation is the same on all backends have one
// maker, a template of the backend's context:
//
//   template <typename Context>
//   std::unique_ptr<Kernel> make_dropout(Context& context, const Graph& g, const Node& n) {
//     return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {       // at plan time
//       return make_kernel([o, p = dropout_params(g, n)](const KernelArgs& a) {    // every step
//         dropout(p, a.in<int64_t>(1), o.in(a, 0), o.out(a, 0), o.run(a));
//       });
//     });
//   }
//
// with_operands(context, graph, node, tensor, f) is the backend's (its kernels.h): it calls f(o)
// for the type of number that `tensor` has, and refuses one that the backend does not compute in.
// `o` is copied into the kernel and hands it the node's arguments as the backend takes them:
//
//   o.in(a, i), o.out(a, i)  tensors, which a GPU may store in 16 bits; nullptr where left out
//   o.number(a, i)           an input that is never in 16 bits; likewise
//   o.run(a)                 what the backend adds. A kernel is called without its namespace: it is
//                            found by the type of this argument (kernels/operands.h)
//   O::Type, O::Number       for operand structs, and for a.out<Number>(i) and a.mut<Number>(i)
//
// A backend's table lists the maker; where the backend goes another way, it lists one of its own.
#pragma once

#include "src/runtime/common/kernel_table.h"

namespace trainyard {

/// On the host: pointers to T, and `Run` with the workspace of the step.
template <typename T, typename Run>
class HostOperands {
 public:
  using Type = T;
  using Number = T;

  explicit HostOperands(Run run) : run_(run) {}
  const T* in(const KernelArgs& a, size_t i) const {
    return i < a.inputs.size() ? a.in<T>(i) : nullptr;
  }
  const T* number(const KernelArgs& a, size_t i) const { return in(a, i); }
  T* out(const KernelArgs& a, size_t i) const {
    return i < a.outputs.size() ? a.out<T>(i) : nullptr;
  }
  Run run(const KernelArgs& a) const {
    Run run = run_;
    run.workspace = a.workspace;
    return run;
  }

 private:
  Run run_;
};

/// Bytes that a maker asks for where the backend's kernel needs no workspace.
inline constexpr auto kNoWorkspace = [](const auto&...) -> int64_t { return 0; };

}  // namespace trainyard
