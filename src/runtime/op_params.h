// src/runtime/op_params.h: what kernels are told about a node, read off the graph in one place for
// all backends.
#pragma once

#include "kernels/dropout.h"
#include "kernels/gemm.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"
#include "kernels/softmax_xent.h"
#include "src/ops/window.h"  // image_dims
#include "src/runtime/kernel_table.h"

namespace trainyard {

/// Gemm and GemmGrad: both begin with x and w.
inline kernels::GemmDims gemm_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  return {x[0], input_info(g, n, 1).type.shape[0], x[1]};
}

/// Dropout and DropoutGrad.
inline kernels::DropoutParams dropout_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("ratio", 0),
          static_cast<uint64_t>(n.attributes.get_int("seed", 0)),
          static_cast<uint32_t>(n.attributes.get_int("stream", 0))};
}

/// SoftmaxCrossEntropyLoss and its gradient: scores come first.
inline kernels::SoftmaxXentDims softmax_xent_dims(const Graph& g, const Node& n) {
  const Shape& z = input_info(g, n, 0).type.shape;
  return {z[0], z[1]};
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
  return p;
}

inline kernels::ClipGradientParams clip_gradient_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("bound", 0)};
}

inline kernels::MovingAverageParams moving_average_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("decay", 0)};
}

}  // namespace trainyard
