// src/runtime/op_params.h: what kernels are told about a node, read off the graph in one place for
// all backends.
#pragma once

#include "kernels/dropout.h"
#include "kernels/gemm.h"
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
          n.attributes.get_float("weight_decay", 0), n.attributes.get_int("nesterov", 0) != 0};
}

/// AdamUpdate and AdamWUpdate.
inline kernels::AdamParams adam_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("beta1", 0.9),
          n.attributes.get_float("beta2", 0.999),    n.attributes.get_float("epsilon", 1e-8),
          n.attributes.get_float("weight_decay", 0), n.op->type() == "AdamWUpdate"};
}

}  // namespace trainyard
