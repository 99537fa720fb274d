// src/runtime/common/activation_kernels.h: kernels of elementwise functions of one input, for every
// backend (adapter.h).
#pragma once

#include "kernels/activation.h"
#include "src/runtime/common/adapter.h"

namespace trainyard {

/// Returns F with its members set from the attributes of the same names.
template <typename F>
F formula_of(const Attributes& attributes) {
  F f;
  if constexpr (requires { f.alpha; }) f.alpha = attributes.get_float("alpha", f.alpha);
  if constexpr (requires { f.beta; }) f.beta = attributes.get_float("beta", f.beta);
  if constexpr (requires { f.gamma; }) f.gamma = attributes.get_float("gamma", f.gamma);
  if constexpr (requires { f.min; }) f.min = attributes.get_float("min", f.min);
  if constexpr (requires { f.max; }) f.max = attributes.get_float("max", f.max);
  return f;
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_activation(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  const F f = formula_of<F>(n.attributes);
  return with_operands(context, g, n, y, [&](auto o) {
    return make_pointwise_kernel(y.type.shape.elements(),
                                 [f, o](const KernelArgs& a, int64_t count) {
                                   activation_forward(count, o.in(a, 0), o.out(a, 0), o.run(a), f);
                                 });
  });
}

template <typename F, typename Context>
std::unique_ptr<Kernel> make_activation_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const F f = formula_of<F>(n.attributes);
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_pointwise_kernel(
        dx.type.shape.elements(), [f, o](const KernelArgs& a, int64_t count) {
          activation_backward(count, o.in(a, 0), o.in(a, 1), o.out(a, 0), o.run(a), f);
        });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_gelu(Context& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation<math::GeluTanh>(c, g, n)
             : make_activation<math::GeluErf>(c, g, n);
}

template <typename Context>
std::unique_ptr<Kernel> make_gelu_grad(Context& c, const Graph& g, const Node& n) {
  return n.attributes.get_string("approximate", "none") == "tanh"
             ? make_activation_grad<math::GeluTanh>(c, g, n)
             : make_activation_grad<math::GeluErf>(c, g, n);
}

/// Returns the table entries for a backend.
template <typename Context>
std::span<const KernelEntry<Context>> activation_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
#define TRAINYARD_ROW(F) \
  {#F, make_activation<math::F, C>}, {#F "Grad", make_activation_grad<math::F, C>},
      TRAINYARD_FOR_EACH_UNARY_OP(TRAINYARD_ROW)
#undef TRAINYARD_ROW
          {"Gelu", make_gelu<C>},
      {"GeluGrad", make_gelu_grad<C>},
  };
  return kEntries;
}

}  // namespace trainyard
