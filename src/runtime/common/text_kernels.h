// src/runtime/common/text_kernels.h: embedding bags, for every backend (adapter.h), and the
// parameters of recurrent layers.
#pragma once

#include "kernels/embedding_bag.h"
#include "kernels/recurrent.h"
#include "src/runtime/common/adapter.h"

namespace trainyard {

/// Returns the dimensions of LSTM, GRU or one of their gradients, whose first inputs are x, w and
/// r.
inline kernels::RecurrentDims recurrent_dims(const Graph& g, const Node& n,
                                             kernels::RecurrentCell cell) {
  const Shape& x = input_info(g, n, 0).type.shape;
  return {cell,
          x[0],
          x[1],
          x[2],
          input_info(g, n, 2).type.shape[1],
          n.attributes.get_string("direction", "forward") == "reverse"};
}

/// `o` is a host backend's operands (src/runtime/common/adapter.h). Omitted trailing inputs are
/// nullptr.
template <typename O>
kernels::RecurrentForwardOperands<typename O::Type> recurrent_forward_operands(
    const O& o, const KernelArgs& a) {
  return {.x = o.in(a, 0),
          .w_ih = o.in(a, 1),
          .w_hh = o.in(a, 2),
          .b_ih = o.in(a, 3),
          .b_hh = o.in(a, 4),
          .y = o.out(a, 0),
          .last = o.out(a, 1),
          .gates = o.out(a, 2),
          .saved = o.out(a, 3)};
}

template <typename O>
kernels::RecurrentBackwardOperands<typename O::Type> recurrent_backward_operands(
    const O& o, const KernelArgs& a) {
  return {.x = o.in(a, 0),
          .w_ih = o.in(a, 1),
          .w_hh = o.in(a, 2),
          .y = o.in(a, 3),
          .gates = o.in(a, 4),
          .saved = o.in(a, 5),
          .dy = o.in(a, 6),
          .dlast = o.in(a, 7),
          .dx = o.out(a, 0),
          .dw_ih = o.out(a, 1),
          .dw_hh = o.out(a, 2),
          .db_ih = o.out(a, 3),
          .db_hh = o.out(a, 4)};
}

/// Returns the dimensions of EmbeddingBag and its gradient.
inline kernels::EmbeddingBagDims embedding_bag_dims(const Node& n, const TensorInfo& t,
                                                    const TensorInfo& token) {
  const Shape &table = t.type.shape, &tokens = token.type.shape;
  return {tokens[0],
          tokens[1],
          table[0],
          table[1],
          n.attributes.get_string("mode", "mean") == "mean",
          n.attributes.get_int("padding_idx", -1)};
}

template <typename Context>
std::unique_ptr<Kernel> make_embedding_bag(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, d = embedding_bag_dims(n, input_info(g, n, 0), input_info(g, n, 1))](
                           const KernelArgs& a) {
      embedding_bag(d, o.in(a, 0), a.in<int32_t>(1), o.out(a, 0), o.run(a));
    });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_embedding_bag_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 1), [&](auto o) {
    const kernels::EmbeddingBagDims d =
        embedding_bag_dims(n, output_info(g, n, 0), input_info(g, n, 0));
    return make_kernel(
        [o, d](const KernelArgs& a) {
          embedding_bag_backward(d, a.in<int32_t>(0), o.in(a, 1), o.out(a, 0), o.run(a));
        },
        kWorkspaceBytes(d));
  });
}

/// Returns the table entries that both host backends share, because these kernels need no
/// workspace.
template <typename Context>
std::span<const KernelEntry<Context>> host_text_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"EmbeddingBag", make_embedding_bag<C>},
      {"EmbeddingBagGrad", make_embedding_bag_grad<C>},
  };
  return kEntries;
}

}  // namespace trainyard
