// src/runtime/common/sequence_kernels.h: layer normalization, embeddings, sequence pooling,
// attention and softmax, for every backend (adapter.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/distinct_rows.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/softmax.h"
#include "kernels/tensor_scatter.h"
#include "src/ops/layer_normalization.h"
#include "src/ops/shards.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/half_kernel.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/common/rotary_kernels.h"

namespace trainyard {

/// Returns the dimensions of LayerNormalization, RMSNormalization, one of their fusions with an
/// addition, or one of their gradients. Input 0 is x.
inline kernels::LayerNormDims layer_norm_dims(const Graph& g, const Node& n,
                                              NormalizationForm form) {
  const Shape& x = input_info(g, n, 0).type.shape;
  int64_t width = 1;
  for (int64_t i = normalization_axis(n.attributes, x); i < x.rank(); ++i) width *= x[i];
  return {x.elements() / width, width, n.attributes.get_float("epsilon", 1e-5),
          form == NormalizationForm::kRms};
}

template <NormalizationForm kForm, typename Context>
std::unique_ptr<Kernel> make_layer_norm(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    return make_kernel([o, d = layer_norm_dims(g, n, kForm)](const KernelArgs& a) {
      using T = typename O::Number;
      const kernels::LayerNormOperands<typename O::Type> operands{
          .x = o.in(a, 0),
          .scale = o.in(a, 1),
          .b = o.in(a, 2),
          .y = o.out(a, 0),
          .mean = d.rms ? nullptr : a.out<T>(1),
          .inv_std = a.out<T>(d.rms ? 1 : 2)};
      layer_norm_forward(d, operands, o.run(a));
    });
  });
}

template <NormalizationForm kForm, typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_layer_norm_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    const kernels::LayerNormDims d = layer_norm_dims(g, n, kForm);
    return make_kernel(
        [o, d](const KernelArgs& a) {
          const kernels::LayerNormGradOperands<typename O::Type> operands{.x = o.in(a, 0),
                                                                          .scale = o.in(a, 1),
                                                                          .mean = o.number(a, 4),
                                                                          .inv_std = o.number(a, 3),
                                                                          .dy = o.in(a, 2),
                                                                          .dx = o.out(a, 0),
                                                                          .dscale = o.out(a, 1),
                                                                          .db = o.out(a, 2)};
          layer_norm_backward(d, operands, o.run(a));
        },
        kWorkspaceBytes(d));
  });
}

/// Returns the dimensions of Gather, SplitGather and their gradients from their table and indices.
inline kernels::GatherDims gather_dims(const Node& n, const Shape& table, const Shape& indices) {
  kernels::GatherDims d{indices.elements(), table[0], table.elements() / table[0]};
  if (n.attributes.find(kRank) != nullptr) d.first = n.attributes.get_int(kRank, 0) * table[0];
  return d;
}

/// Makes the kernel of Gather from a table that a host stores in 16 bits: only the rows that are
/// looked up are widened. nullptr if y is stored in another 16-bit type.
template <typename Conversion>
std::unique_ptr<Kernel> make_gather_from_half(Conversion conversion, const Graph& g,
                                              const Node& n) {
  const TensorInfo &table = input_info(g, n, 0), &y = output_info(g, n, 0);
  if (y.is_half() && y.storage != table.storage) return nullptr;
  const kernels::GatherDims d = gather_dims(n, table.type.shape, input_info(g, n, 1).type.shape);
  return make_stored_kernel(
      [conversion, d, storage = table.storage, widens = !y.is_half()](const KernelArgs& a) {
        constexpr int64_t kHalf = 2;
        const auto* index = a.in<int32_t>(1);
        const int64_t row_bytes = d.width * (widens ? static_cast<int64_t>(sizeof(float)) : kHalf);
        for (int64_t i = 0; i < d.count; ++i) {
          const int64_t row = d.row(index[i]);
          std::byte* const to = a.out<std::byte>(0) + i * row_bytes;
          const std::byte* const from = a.in<std::byte>(0) + row * d.width * kHalf;
          if (row < 0) {
            std::fill_n(to, row_bytes, std::byte{0});
          } else if (widens) {
            widen(conversion, storage, d.width, from, reinterpret_cast<float*>(to));
          } else {
            conversion.copy(row_bytes, from, to);
          }
        }
      });
}

template <typename Context>
std::unique_ptr<Kernel> make_gather(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& table = input_info(g, n, 0);
  if constexpr (requires { conversion_of(context); }) {
    if (table.is_half()) {
      if (auto kernel = make_gather_from_half(conversion_of(context), g, n)) return kernel;
    }
  }
  return with_operands(context, g, n, table, [&](auto o) {
    return make_kernel([o, d = gather_dims(n, table.type.shape, input_info(g, n, 1).type.shape)](
                           const KernelArgs& a) {
      gather(d, o.in(a, 0), a.in<int32_t>(1), o.out(a, 0), o.run(a));
    });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_gather_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& table = output_info(g, n, 0);
  return with_operands(context, g, n, table, [&](auto o) {
    const kernels::GatherDims d = gather_dims(n, table.type.shape, input_info(g, n, 0).type.shape);
    return make_kernel(
        [o, d](const KernelArgs& a) {
          gather_backward(d, a.in<int32_t>(0), o.in(a, 1), o.out(a, 0), o.run(a));
        },
        kWorkspaceBytes(d));
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_distinct_rows(Context& context, const Graph& g, const Node& n) {
  TensorInfo any_number;  // the kernel computes no numbers of this type
  any_number.type = {{1}, DType::kF32};
  return with_operands(context, g, n, any_number, [&](auto o) {
    const kernels::DistinctRowsParams p = distinct_rows_params(g, n);
    return make_kernel(
        [o, p, counted = has_input(n, 1) ? size_t{1} : size_t{0},
         keeps = has_input(n, 2)](const KernelArgs& a) {
          const kernels::DistinctRowsOperands operands{
              .index = a.in<int32_t>(0),
              .counted = a.in<int32_t>(counted),
              .micro_step = keeps ? a.in<int64_t>(3) : nullptr,
              .kept = keeps ? a.mut<int32_t>(0) : nullptr,
              .rows = a.out<int32_t>(0),
              .position = a.out<int32_t>(1)};
          distinct_rows(p, operands, o.run(a));
        },
        kWorkspaceBytes(p));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_positions(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const Shape& s = x.type.shape;
  const int64_t prefix = has_input(n, 2) ? input_info(g, n, 2).type.shape[0] : 0;
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel(
        [o, d = kernels::PositionDims{s[0], s[1], s[2], prefix}](const KernelArgs& a) {
          add_positions(d, o.in(a, 0), o.in(a, 1), o.in(a, 2), o.out(a, 0), o.run(a));
        });
  });
}

template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_positions_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dy = input_info(g, n, 0);
  const Shape& s = dy.type.shape;
  const int64_t prefix = n.attributes.get_int("prefix", 0);
  return with_operands(context, g, n, dy, [&](auto o) {
    const kernels::PositionDims d{s[0], s[1] - prefix, s[2], prefix};
    return make_kernel(
        [o, d](const KernelArgs& a) {
          add_positions_backward(d, o.in(a, 0), o.out(a, 0), o.out(a, 1), o.out(a, 2), o.run(a));
        },
        kWorkspaceBytes(d));
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_tensor_scatter(Context& context, const Graph& g, const Node& n) {
  const Shape& cache = input_info(g, n, 0).type.shape;
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    const kernels::TensorScatterDims d{cache[0], cache[1], input_info(g, n, 1).type.shape[1],
                                       cache[2]};
    return make_kernel([o, d](const KernelArgs& a) {
      tensor_scatter(d, o.in(a, 1), a.in<int32_t>(2), o.updated(a, 0, 0), o.run(a));
    });
  });
}

/// Returns the token of a node's attribute that fills the end of short texts.
inline int32_t padding_of(const Node& n) {
  return static_cast<int32_t>(n.attributes.get_int("padding_id", 0));
}

/// Returns the dimensions of SequencePool or its gradient; x is [N, T, D].
inline kernels::SequencePoolDims sequence_pool_dims(const Node& n, const Shape& x) {
  const std::string mode = n.attributes.get_string("mode", "mean");
  return {x[0], x[1], x[2],
          mode == "mean"    ? kernels::PoolMode::kMean
          : mode == "first" ? kernels::PoolMode::kFirst
                            : kernels::PoolMode::kLast,
          padding_of(n)};
}

/// Returns the dimensions of SequencePool with mode max, or its gradient; x is [N, T, D].
inline kernels::SequenceMaxDims sequence_max_dims(const Graph& g, const Node& n, const Shape& x) {
  return {x[0], x[1], x[2], has_input(n, 1) ? input_info(g, n, 1).type.shape[1] : x[1],
          padding_of(n)};
}
inline bool is_sequence_max(const Node& n) {
  return n.attributes.get_string("mode", "mean") == "max";
}

template <typename Context>
std::unique_ptr<Kernel> make_sequence_pool(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  if (is_sequence_max(n)) {
    return with_operands(context, g, n, x, [&](auto o) {
      return make_kernel([o, d = sequence_max_dims(g, n, x.type.shape),
                          has_tokens = has_input(n, 1)](const KernelArgs& a) {
        sequence_max(d, o.in(a, 0), has_tokens ? a.in<int32_t>(1) : nullptr, o.out(a, 0), o.run(a));
      });
    });
  }
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel([o, d = sequence_pool_dims(n, x.type.shape),
                        has_tokens = has_input(n, 1)](const KernelArgs& a) {
      sequence_pool(d, o.in(a, 0), has_tokens ? a.in<int32_t>(1) : nullptr, o.out(a, 0), o.run(a));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_sequence_pool_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  if (is_sequence_max(n)) {
    return with_operands(context, g, n, dx, [&](auto o) {
      return make_kernel([o, d = sequence_max_dims(g, n, dx.type.shape),
                          has_tokens = has_input(n, 1)](const KernelArgs& a) {
        sequence_max_backward(d, o.in(a, 2), has_tokens ? a.in<int32_t>(1) : nullptr, o.in(a, 0),
                              o.out(a, 0), o.run(a));
      });
    });
  }
  return with_operands(context, g, n, dx, [&](auto o) {
    return make_kernel([o, d = sequence_pool_dims(n, dx.type.shape),
                        has_tokens = has_input(n, 1)](const KernelArgs& a) {
      sequence_pool_backward(d, has_tokens ? a.in<int32_t>(1) : nullptr, o.in(a, 0), o.out(a, 0),
                             o.run(a));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_reverse_sequence(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const Shape& s = x.type.shape;
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel([o, d = kernels::ReverseDims{s[0], s[1], s[2]}](const KernelArgs& a) {
      reverse_sequence(d, o.in(a, 0), a.in<int32_t>(1), o.out(a, 0), o.run(a));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_sequence_lengths(Context& context, const Graph& g, const Node& n) {
  const Shape& tokens = input_info(g, n, 0).type.shape;
  TensorInfo any_number;  // the kernel computes no numbers of this type
  any_number.type = {{1}, DType::kF32};
  return with_operands(context, g, n, any_number, [&](auto o) {
    return make_kernel([o, d = kernels::SequenceLengthDims{tokens[0], tokens[1], padding_of(n)}](
                           const KernelArgs& a) {
      sequence_lengths(d, a.in<int32_t>(0), a.out<int32_t>(0), o.run(a));
    });
  });
}

/// The parameters of Attention and its gradient. Packed operands are in one tensor: k begins after
/// `q_width` elements, v another `kv_width` after that.
struct AttentionParams {
  kernels::AttentionDims dims;
  bool packed = false;
  int64_t q_width = 0, kv_width = 0;
  bool limited = false;  // there are positions or key counts
};
/// `query` is the index of the query's input; key and value are the next inputs.
inline AttentionParams attention_params(const Graph& g, const Node& n, size_t query) {
  const Shape& q = input_info(g, n, query).type.shape;
  AttentionParams p;
  p.packed = !has_input(n, query + 1);
  p.limited = has_input(n, query + 4) || has_input(n, query + 5);
  kernels::AttentionDims& d = p.dims;
  d.N = q[0];
  d.H = n.attributes.get_int("q_num_heads", 1);
  d.kv_heads = n.attributes.get_int("kv_num_heads", d.H);
  d.Tq = q[1];
  d.Tk = p.packed ? q[1] : input_info(g, n, query + 1).type.shape[1];
  d.D = q[2] / (p.packed ? d.H + 2 * d.kv_heads : d.H);
  p.q_width = d.H * d.D;
  p.kv_width = d.kv_heads * d.D;
  d.q_row = q[2];
  d.kv_row = p.packed ? q[2] : p.kv_width;
  d.scale = n.attributes.get_float("scale", 1 / std::sqrt(static_cast<double>(d.D)));
  d.causal = n.attributes.get_int("is_causal", 0) != 0;
  d.window = n.attributes.get_int("window", 0);
  d.cached = n.attributes.get_int("cached", 0) != 0;
  d.dropout = n.attributes.get_float("dropout", 0);
  d.seed = static_cast<uint64_t>(n.attributes.get_int("seed", 0));
  d.stream = static_cast<uint32_t>(n.attributes.get_int("stream", 0));
  d.first_head = n.attributes.get_int("rank", 0) * d.N * d.H;
  d.tf32 = allows_tf32(n);
  return p;
}

/// Returns the optimizer step, the input after query, key and value; nullptr without dropout.
inline const int64_t* attention_step(const KernelArgs& a, size_t query) {
  return a.inputs.size() > query + 3 ? a.in<int64_t>(query + 3) : nullptr;
}

/// Returns what limits the keys that queries see, the inputs after step.
inline kernels::SeenKeys seen_keys(const KernelArgs& a, size_t query) {
  const auto input = [&](size_t i) { return a.inputs.size() > i ? a.in<int32_t>(i) : nullptr; };
  return {.positions = input(query + 4), .key_counts = input(query + 5)};
}

/// Returns the starts of q, k and v, or of their gradients; omitted tensors stay empty.
template <typename View>
struct AttentionParts {
  View q, k, v;
  AttentionParts(const AttentionParams& p, View query, View key, View value)
      : q(query), k(key), v(value) {
    if (!p.packed) return;
    k = q ? q + p.q_width : View{};
    v = q ? k + p.kv_width : View{};
  }
};

/// The kernel needs kWorkspaceBytes(context, dims).
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_attention_of(Context& context, const Graph& g, const Node& n,
                                          const AttentionParams& p) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    return make_kernel(
        [o, p](const KernelArgs& a) {
          const AttentionParts x(p, o.in(a, 0), o.in(a, 1), o.in(a, 2));
          const kernels::AttentionOperands<typename O::Type> operands{
              .step = attention_step(a, 0),
              .q = x.q,
              .k = x.k,
              .v = x.v,
              .y = o.out(a, 0),
              .lse = a.out<typename O::Number>(1),
              .seen = seen_keys(a, 0)};
          attention_forward(p.dims, operands, o.run(a));
        },
        kWorkspaceBytes(context, p.dims));
  });
}
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_attention(Context& context, const Graph& g, const Node& n) {
  return make_attention_of<Context, kWorkspaceBytes>(context, g, n, attention_params(g, n, 0));
}

/// The kernel needs kWorkspaceBytes(context, dims).
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_attention_grad_of(Context& context, const Graph& g, const Node& n,
                                               const AttentionParams& p) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    return make_kernel(
        [o, p](const KernelArgs& a) {
          const AttentionParts x(p, o.in(a, 3), o.in(a, 4), o.in(a, 5));
          const AttentionParts dx(p, o.out(a, 0), o.out(a, 1), o.out(a, 2));
          const kernels::AttentionGradOperands<typename O::Type> operands{
              .step = attention_step(a, 3),
              .q = x.q,
              .k = x.k,
              .v = x.v,
              .y = o.in(a, 0),
              .lse = o.number(a, 1),
              .dy = o.in(a, 2),
              .dq = dx.q,
              .dk = dx.k,
              .dv = dx.v,
              .seen = seen_keys(a, 3)};
          attention_backward(p.dims, operands, o.run(a));
        },
        kWorkspaceBytes(context, p.dims));
  });
}
template <typename Context, auto kWorkspaceBytes = kNoWorkspace>
std::unique_ptr<Kernel> make_attention_grad(Context& context, const Graph& g, const Node& n) {
  return make_attention_grad_of<Context, kWorkspaceBytes>(context, g, n, attention_params(g, n, 3));
}

/// Returns the dimensions of Softmax, LogSoftmax or one of their gradients, from the shape of input
/// 0.
inline kernels::SoftmaxDims softmax_dims(const Graph& g, const Node& n, bool log) {
  const Shape& x = input_info(g, n, 0).type.shape;
  const int64_t axis = normalization_axis(n.attributes, x);
  kernels::SoftmaxDims d{1, x[axis], 1, log};
  for (int64_t i = 0; i < axis; ++i) d.outer *= x[i];
  for (int64_t i = axis + 1; i < x.rank(); ++i) d.inner *= x[i];
  return d;
}

template <bool kLog, typename Context>
std::unique_ptr<Kernel> make_softmax(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, d = softmax_dims(g, n, kLog)](const KernelArgs& a) {
      softmax_forward(d, o.in(a, 0), o.out(a, 0), o.run(a));
    });
  });
}

template <bool kLog, typename Context>
std::unique_ptr<Kernel> make_softmax_grad(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, d = softmax_dims(g, n, kLog)](const KernelArgs& a) {
      softmax_backward(d, o.in(a, 0), o.in(a, 1), o.out(a, 0), o.run(a));
    });
  });
}

/// Returns the table entries that both host backends share, because these kernels need no
/// workspace.
template <typename Context>
std::span<const KernelEntry<Context>> host_sequence_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"Gather", make_gather<C>},
      {"GatherGrad", make_gather_grad<C>},
      {"SplitGather", make_gather<C>},
      {"SplitGatherGrad", make_gather_grad<C>},
      {"PositionEmbedding", make_positions<C>},
      {"PositionEmbeddingGrad", make_positions_grad<C>},
      {"RotaryTables", make_rotary_tables<C>},
      {"RotaryEmbedding", make_rotary<C>},
      {"ReverseSequence", make_reverse_sequence<C>},
      {"SequenceLengths", make_sequence_lengths<C>},
      {"TensorScatter", make_tensor_scatter<C>},
      {"SequencePool", make_sequence_pool<C>},
      {"SequencePoolGrad", make_sequence_pool_grad<C>},
      {"Softmax", make_softmax<false, C>},
      {"SoftmaxGrad", make_softmax_grad<false, C>},
      {"LogSoftmax", make_softmax<true, C>},
      {"LogSoftmaxGrad", make_softmax_grad<true, C>},
  };
  return kEntries;
}

}  // namespace trainyard
