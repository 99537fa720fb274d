// src/runtime/text_kernels.h: the dimensions that kernels of sequences take, read off a node.
// Shared by the backends.
#pragma once

#include "kernels/embedding_bag.h"
#include "kernels/recurrent.h"
#include "src/runtime/kernel_table.h"

namespace trainyard {

/// LSTM, GRU and their gradients: all begin with x, w and r.
inline kernels::RecurrentDims recurrent_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  const bool lstm = n.op->type().starts_with("LSTM");
  return {lstm ? kernels::RecurrentCell::kLstm : kernels::RecurrentCell::kGru,
          x[0],
          x[1],
          x[2],
          input_info(g, n, 2).type.shape[1],
          n.attributes.get_string("direction", "forward") == "reverse"};
}

template <typename T>
kernels::RecurrentForwardArgs<T> recurrent_forward_args(const KernelArgs& a, bool bias) {
  return {a.in<T>(0),
          a.in<T>(1),
          a.in<T>(2),
          bias ? a.in<T>(3) : nullptr,
          bias ? a.in<T>(4) : nullptr,
          a.out<T>(0),
          a.out<T>(1),
          a.out<T>(2),
          a.out<T>(3)};
}

/// `count`: the node's inputs; gradients that are left out at the end are not among them.
template <typename T>
kernels::RecurrentBackwardArgs<T> recurrent_backward_args(const KernelArgs& a, size_t count) {
  const auto in = [&](size_t i) { return i < count ? a.in<T>(i) : nullptr; };
  return {in(0), in(1),       in(2),       in(3),       in(4),       in(5),      in(6),
          in(7), a.out<T>(0), a.out<T>(1), a.out<T>(2), a.out<T>(3), a.out<T>(4)};
}

/// EmbeddingBag (table, tokens) and its gradient (tokens, dy).
inline kernels::EmbeddingBagDims embedding_bag_dims(const Graph& g, const Node& n) {
  const bool gradient = n.op->type() == "EmbeddingBagGrad";
  const Shape& tokens = input_info(g, n, gradient ? 0 : 1).type.shape;
  const Shape& table = gradient ? output_info(g, n, 0).type.shape : input_info(g, n, 0).type.shape;
  return {tokens[0],
          tokens[1],
          table[0],
          table[1],
          n.attributes.get_string("mode", "mean") == "mean",
          n.attributes.get_int("padding_idx", -1)};
}

}  // namespace trainyard
