// src/runtime/common/adapter.h: kernels that all backends prepare in the same way are created by
// one function, a template on the backend's context:
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
// Each backend defines with_operands(context, graph, node, tensor, f) (in its kernels.h). It calls
// f(o) for the number type of `tensor`, and fails a check if the backend does not compute in that
// type. `o` is copied into the kernel and gives it the node's arguments in the backend's form:
//
//   o.in(a, i), o.out(a, i)  tensors, which a GPU may store in 16 bits; nullptr if omitted
//   o.number(a, i)           an input that is never stored in 16 bits; nullptr if omitted
//   o.updated(a, i, k)       input i, which is the k-th that the op updates; nullptr if omitted
//   o.run(a)                 the backend's own arguments, such as threads or stream. Kernels are
//                            called without a namespace: argument-dependent lookup on this argument
//                            finds the backend's overload (kernels/operands.h)
//   O::Type, O::Number       for operand structs, and for a.out<Number>(i) and a.mut<Number>(i)
//
// A backend's table lists the shared function, or a function of its own instead.
#pragma once

#include "src/runtime/common/kernel_table.h"

namespace trainyard {

/// Operands on the host: pointers to T, and `Run` with the step's workspace.
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
  T* updated(const KernelArgs& a, size_t, size_t k) const {
    return k < a.mutated.size() ? a.mut<T>(k) : nullptr;
  }
  Run run(const KernelArgs& a) const {
    Run run = run_;
    run.workspace = a.workspace;
    return run;
  }

 private:
  Run run_;
};

/// The value of a template parameter kWorkspaceBytes if the backend's kernel needs no workspace.
inline constexpr auto kNoWorkspace = [](const auto&...) -> int64_t { return 0; };

}  // namespace trainyard
