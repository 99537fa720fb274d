// src/runtime/op_params.h: what kernels are told about a node, read off the graph in one place for
// all backends.
#pragma once

#include <cmath>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/gradient.h"
#include "kernels/layer_norm.h"
#include "kernels/math/losses.h"
#include "kernels/optimizer.h"
#include "kernels/softmax.h"
#include "kernels/softmax_xent.h"
#include "src/ops/layer_normalization.h"
#include "src/ops/mat_mul.h"
#include "src/ops/window.h"  // image_dims
#include "src/runtime/kernel_table.h"

namespace trainyard {

/// Gemm and GemmGrad: both begin with x and w.
inline kernels::GemmDims gemm_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  return {x[0], input_info(g, n, 1).type.shape[0], x[1]};
}

/// LayerNormalization, RMSNormalization, those of a sum, and their gradients: x comes first.
inline kernels::LayerNormDims layer_norm_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  int64_t width = 1;
  for (int64_t i = normalization_axis(n.attributes, x); i < x.rank(); ++i) width *= x[i];
  return {x.elements() / width, width, n.attributes.get_float("epsilon", 1e-5),
          n.op->type().find("RMS") != std::string_view::npos};
}

/// Softmax, LogSoftmax and their gradients: input 0 has the shape.
inline kernels::SoftmaxDims softmax_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  const int64_t axis = normalization_axis(n.attributes, x);
  kernels::SoftmaxDims d{1, x[axis], 1, n.op->type().starts_with("Log")};
  for (int64_t i = 0; i < axis; ++i) d.outer *= x[i];
  for (int64_t i = axis + 1; i < x.rank(); ++i) d.inner *= x[i];
  return d;
}

/// MatMul and MatMulGrad: a and b come first.
inline kernels::MatMulBatch mat_mul_dims(const Graph& g, const Node& n) {
  return mat_mul_batch(input_info(g, n, 0).type.shape, input_info(g, n, 1).type.shape);
}

/// Gather and GatherGrad, by their table and indices.
inline kernels::GatherDims gather_dims(const Shape& table, const Shape& indices) {
  return {indices.elements(), table[0], table.elements() / table[0]};
}

/// PositionEmbedding and its gradient, by x [N, T, D] and the number of positions in front.
inline kernels::PositionDims position_dims(const Shape& x, int64_t prefix) {
  return {x[0], x[1], x[2], prefix};
}

inline kernels::PoolMode pool_mode(std::string_view name) {
  return name == "mean"    ? kernels::PoolMode::kMean
         : name == "first" ? kernels::PoolMode::kFirst
                           : kernels::PoolMode::kLast;
}

/// SequencePool and its gradient, by x [N, T, D].
inline kernels::SequencePoolDims sequence_pool_dims(const Node& n, const Shape& x) {
  return {x[0], x[1], x[2], pool_mode(n.attributes.get_string("mode", "mean"))};
}

/// Attention and its gradient. Packed operands lie in one tensor, `part` elements apart.
struct AttentionParams {
  kernels::AttentionDims dims;
  bool packed = false;
  int64_t part = 0;
};
/// `query` is the index of that input, key and value follow it.
inline AttentionParams attention_params(const Graph& g, const Node& n, size_t query) {
  const Shape& q = input_info(g, n, query).type.shape;
  AttentionParams p;
  p.packed = !has_input(n, query + 1);
  p.part = p.packed ? q[2] / 3 : q[2];
  kernels::AttentionDims& d = p.dims;
  d.N = q[0];
  d.H = n.attributes.get_int("q_num_heads", 1);
  d.Tq = q[1];
  d.Tk = p.packed ? q[1] : input_info(g, n, query + 1).type.shape[1];
  d.D = p.part / d.H;
  d.q_row = d.kv_row = q[2];
  d.scale = n.attributes.get_float("scale", 1 / std::sqrt(static_cast<double>(d.D)));
  d.causal = n.attributes.get_int("is_causal", 0) != 0;
  d.dropout = n.attributes.get_float("dropout", 0);
  d.seed = static_cast<uint64_t>(n.attributes.get_int("seed", 0));
  d.stream = static_cast<uint32_t>(n.attributes.get_int("stream", 0));
  d.first_head = n.attributes.get_int("rank", 0) * d.N * d.H;
  return p;
}

/// The optimizer step, which stands behind query, key and value; nullptr without dropout.
inline const int64_t* attention_step(const KernelArgs& a, size_t query) {
  return a.inputs.size() > query + 3 ? a.in<int64_t>(query + 3) : nullptr;
}

/// Where q, k and v begin; T may be const. What is left out stays nullptr.
template <typename T>
struct AttentionOperands {
  T *q, *k, *v;
  AttentionOperands(const AttentionParams& p, T* query, T* key, T* value)
      : q(query), k(key), v(value) {
    if (p.packed && q != nullptr) {
      k = q + p.part;
      v = k + p.part;
    }
  }
};

/// Dropout and DropoutGrad.
inline kernels::DropoutParams dropout_params(const Graph& g, const Node& n) {
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return {count, n.attributes.get_float("ratio", 0),
          static_cast<uint64_t>(n.attributes.get_int("seed", 0)),
          static_cast<uint32_t>(n.attributes.get_int("stream", 0)),
          n.attributes.get_int("rank", 0) * ((count + 3) / 4)};
}

/// SoftmaxCrossEntropyLoss, KullbackLeiblerDivergence and their gradient: scores come first.
inline kernels::SoftmaxXentParams softmax_xent_params(const Graph& g, const Node& n) {
  const Shape& z = input_info(g, n, 0).type.shape;
  return {z[0],
          z[1],
          n.attributes.get_float("label_smoothing", 0),
          n.attributes.get_int("ignore_index", -1),
          n.attributes.get_floats("class_weights", {}),
          n.op->type() == "KullbackLeiblerDivergence"};
}

/// GemmSoftmaxCrossEntropyLoss: by x and w.
inline kernels::SoftmaxXentParams head_loss_params(const Graph& g, const Node& n) {
  const kernels::GemmDims d = gemm_dims(g, n);
  return {d.N, d.K, n.attributes.get_float("label_smoothing", 0),
          n.attributes.get_int("ignore_index", -1), n.attributes.get_floats("class_weights", {})};
}

/// A loss of kernels/math/losses.h with its members set from the attributes of those names.
template <typename F>
F loss_of(const Attributes& attributes) {
  F f;
  if constexpr (requires { f.delta; }) f.delta = attributes.get_float("delta", f.delta);
  if constexpr (requires { f.pos_weight; }) {
    f.pos_weight = attributes.get_float("pos_weight", f.pos_weight);
  }
  return f;
}

/// Calls f(Target()) with the type in which a loss or its gradient gets its target: input 1, a
/// class, or numbers as the predictions T (shares of classes are such).
template <typename T, typename Function>
std::unique_ptr<Kernel> with_target_type(const Graph& g, const Node& n, const Function& f) {
  return input_info(g, n, 1).type.dtype == DType::kI32 ? f(int32_t()) : f(T());
}

inline kernels::SgdParams sgd_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("momentum", 0),
          n.attributes.get_float("weight_decay", 0), n.attributes.get_int("nesterov", 0) != 0,
          n.attributes.get_float("rate_factor", 1)};
}

/// AdamUpdate and AdamWUpdate.
inline kernels::AdamParams adam_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("beta1", 0.9),
          n.attributes.get_float("beta2", 0.999),    n.attributes.get_float("epsilon", 1e-8),
          n.attributes.get_float("weight_decay", 0), n.op->type() == "AdamWUpdate",
          n.attributes.get_float("rate_factor", 1)};
}

inline kernels::RmspropParams rmsprop_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  return {input_info(g, n, 0).type.shape.elements(),
          a.get_float("alpha", 0.99),
          a.get_float("epsilon", 1e-8),
          a.get_float("momentum", 0),
          a.get_float("weight_decay", 0),
          a.get_float("rate_factor", 1)};
}

inline kernels::LionParams lion_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  return {input_info(g, n, 0).type.shape.elements(), a.get_float("beta1", 0.9),
          a.get_float("beta2", 0.99), a.get_float("weight_decay", 0),
          a.get_float("rate_factor", 1)};
}

inline kernels::AdafactorParams adafactor_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  const Shape& p = input_info(g, n, 0).type.shape;
  const int64_t columns = p[p.rank() - 1];
  const int64_t rows = p.rank() > 1 ? p[p.rank() - 2] : 0;
  const int64_t batch = rows == 0 ? 1 : p.elements() / (rows * columns);
  return {batch,
          rows,
          columns,
          a.get_float("beta2_decay", -0.8),
          a.get_float("epsilon", 0x1p-23),
          a.get_float("scale_min", 1e-3),
          a.get_float("clip_threshold", 1),
          a.get_float("weight_decay", 0),
          a.get_float("rate_factor", 1)};
}

inline kernels::MuonParams muon_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  const Shape& p = input_info(g, n, 0).type.shape;
  return {p[0],
          p[1],
          a.get_float("momentum", 0.95),
          a.get_float("weight_decay", 0),
          a.get_float("rate_factor", 1),
          a.get_int("nesterov", 1) != 0,
          a.get_int("match_adamw", 0) != 0,
          a.get_int("iterations", 5)};
}

inline kernels::GradientNormParams gradient_norm_params(const Graph& g, const Node& n) {
  kernels::GradientNormParams p;
  for (const TensorId id : n.inputs) p.counts.push_back(g.tensor(id).type.shape.elements());
  p.max_norm = n.attributes.get_float("max_norm", 0);
  p.scaled = n.attributes.get_int("scaled", 0) != 0;
  if (p.scaled) p.counts.pop_back();
  return p;
}

inline math::LossScaling loss_scaling(const Node& n) {
  const math::LossScaling s;
  return {n.attributes.get_float("growth", s.growth), n.attributes.get_float("backoff", s.backoff),
          n.attributes.get_int("interval", s.interval)};
}
template <typename T>
kernels::LossScale<T> loss_scale(const KernelArgs& a) {
  return {a.mut<T>(0), a.mut<int64_t>(1), a.mut<int64_t>(2)};
}
template <typename T>
kernels::LossScaleStep<T> loss_scale_step(const KernelArgs& a) {
  return {a.out<float>(0), a.out<int64_t>(1), a.out<T>(2)};
}

inline kernels::ClipGradientParams clip_gradient_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("bound", 0)};
}

inline kernels::MovingAverageParams moving_average_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("decay", 0)};
}

}  // namespace trainyard
