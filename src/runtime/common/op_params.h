// src/runtime/common/op_params.h: derives kernels' parameters from a node of the graph, for all
// backends.
#pragma once

#include <cstring>

#include "kernels/distinct_rows.h"
#include "kernels/dropout.h"
#include "kernels/gemm.h"
#include "kernels/gradient.h"
#include "kernels/math/losses.h"
#include "kernels/optimizer.h"
#include "kernels/sampled_xent.h"
#include "kernels/softmax_xent.h"
#include "kernels/split_xent.h"
#include "src/ops/dropout.h"
#include "src/ops/gemm.h"
#include "src/ops/mat_mul.h"
#include "src/ops/optimizer_update.h"
#include "src/ops/shards.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/window.h"  // image_dims
#include "src/runtime/common/kernel_table.h"

namespace trainyard {

/// Returns the dimensions of Gemm, GemmGrad, or a sum with one of them, whose first inputs are x
/// and w.
inline kernels::GemmDims gemm_dims(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  const bool adds = n.op == gemm_add_op() || n.op == gemm_grad_add_op();
  return {x[0], input_info(g, n, 1).type.shape[0], x[1], adds};
}
/// Copies input 3 of GemmAdd or GemmGradAdd to output 0, to which the product is added, unless both
/// share their memory.
inline void begin_sum(const KernelArgs& a, int64_t bytes) {
  if (a.outputs[0] == nullptr || a.outputs[0] == a.inputs[3]) return;
  std::memcpy(a.outputs[0], a.inputs[3], static_cast<size_t>(bytes));
}

/// Returns the dimensions of MatMul or MatMulGrad, whose first inputs are a and b.
inline kernels::MatMulBatch mat_mul_dims(const Graph& g, const Node& n) {
  return mat_mul_batch(input_info(g, n, 0).type.shape, input_info(g, n, 1).type.shape);
}

/// Returns the parameters of Dropout and DropoutGrad.
inline kernels::DropoutParams dropout_params(const Graph& g, const Node& n) {
  const Shape& x = input_info(g, n, 0).type.shape;
  const int64_t count = x.elements(), units = n.attributes.get_int(kDrawnUnits, 0);
  const int64_t first = units > 0 ? n.attributes.get_int(kFirstDrawnUnit, 0) / kUnitsDrawnTogether
                                  : n.attributes.get_int("rank", 0) * ((count + 3) / 4);
  kernels::DropoutColumns columns;
  if (units > 0) columns = {x[1] / kUnitsDrawnTogether, units / kUnitsDrawnTogether};
  return {count,
          n.attributes.get_float("ratio", 0),
          static_cast<uint64_t>(n.attributes.get_int("seed", 0)),
          static_cast<uint32_t>(n.attributes.get_int("stream", 0)),
          first,
          columns};
}

/// Returns the parameters of SoftmaxCrossEntropyLoss, KullbackLeiblerDivergence or their gradient.
/// Input 0 has the shape of the scores.
inline kernels::SoftmaxXentParams softmax_xent_params(const Graph& g, const Node& n) {
  const Shape& z = input_info(g, n, 0).type.shape;
  return {z[0],
          z[1],
          n.attributes.get_float("label_smoothing", 0),
          n.attributes.get_int("ignore_index", -1),
          n.attributes.get_floats("class_weights", {}),
          n.op->type() == kl_divergence_op()->type()};
}

/// Returns the parameters of ClassSoftmax, SplitSoftmaxCrossEntropyLoss or its gradient. Input 0
/// has one row of this rank's classes per sample.
inline kernels::SplitXentParams split_xent_params(const Graph& g, const Node& n) {
  const Shape& z = input_info(g, n, 0).type.shape;
  kernels::SplitXentParams p;
  p.loss = {z[0], n.attributes.get_int("classes", 0), n.attributes.get_float("label_smoothing", 0),
            n.attributes.get_int("ignore_index", -1), n.attributes.get_floats("class_weights", {})};
  p.width = z[1];
  p.parts = n.attributes.get_int(kRanks, 1);
  p.part = n.attributes.get_int(kRank, 0);
  p.first = kernels::class_part_first(p.loss.classes, p.width, p.part);
  p.count = kernels::class_part_first(p.loss.classes, p.width, p.part + 1) - p.first;
  return p;
}

inline kernels::SampleClassesParams sample_classes_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  const int64_t rows = input_info(g, n, 0).type.shape[0];
  return {rows,
          has_input(n, 2) ? input_info(g, n, 2).type.shape[0] : rows,
          a.get_int("samples", 1),
          a.get_int("ignore_index", -1),
          static_cast<uint64_t>(a.get_int("seed", 0)),
          static_cast<uint32_t>(a.get_int("stream", 0)),
          math::candidates_of(a.get_int("classes", 2),
                              a.get_string("distribution", "log_uniform") == "log_uniform"),
          a.get_int("micro_batches", 1)};
}

inline kernels::DistinctRowsParams distinct_rows_params(const Graph& g, const Node& n) {
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return {count, has_input(n, 1) ? input_info(g, n, 1).type.shape.elements() : count,
          output_info(g, n, 0).type.shape[0], n.attributes.get_int("table", 1)};
}

/// Returns the parameters of SampledSoftmaxCrossEntropyLoss or its gradient. Input 0 has the shape
/// of the scores.
inline kernels::SampledXentParams sampled_xent_params(const Graph& g, const Node& n) {
  const Shape& z = input_info(g, n, 0).type.shape;
  return {z[0], z[1], n.attributes.get_int("samples", 1)};
}

/// Returns the dimensions of a table and of the rows in it that `index` selects.
inline kernels::TableRows table_rows(const Shape& table, const Shape& index) {
  return {index[0], table[0], table.elements() / table[0]};
}

/// Returns the parameters of the loss in GemmSoftmaxCrossEntropyLoss, whose first inputs are x and
/// w.
inline kernels::SoftmaxXentParams head_loss_params(const Graph& g, const Node& n) {
  const kernels::GemmDims d = gemm_dims(g, n);
  return {d.N, d.K, n.attributes.get_float("label_smoothing", 0),
          n.attributes.get_int("ignore_index", -1), n.attributes.get_floats("class_weights", {})};
}

inline kernels::SgdParams sgd_params(const Graph& g, const Node& n) {
  return {updated_range(g, n).count, n.attributes.get_float("momentum", 0),
          n.attributes.get_float("weight_decay", 0), n.attributes.get_int("nesterov", 0) != 0,
          n.attributes.get_float("rate_factor", 1)};
}

/// Returns the parameters of AdamUpdate and AdamWUpdate.
inline kernels::AdamParams adam_params(const Graph& g, const Node& n) {
  return {updated_range(g, n).count,
          n.attributes.get_float("beta1", 0.9),
          n.attributes.get_float("beta2", 0.999),
          n.attributes.get_float("epsilon", 1e-8),
          n.attributes.get_float("weight_decay", 0),
          n.op->type() == "AdamWUpdate",
          n.attributes.get_float("rate_factor", 1)};
}

inline kernels::RmspropParams rmsprop_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  return {updated_range(g, n).count,      a.get_float("alpha", 0.99),
          a.get_float("epsilon", 1e-8),   a.get_float("momentum", 0),
          a.get_float("weight_decay", 0), a.get_float("rate_factor", 1)};
}

inline kernels::LionParams lion_params(const Graph& g, const Node& n) {
  const Attributes& a = n.attributes;
  return {updated_range(g, n).count, a.get_float("beta1", 0.9), a.get_float("beta2", 0.99),
          a.get_float("weight_decay", 0), a.get_float("rate_factor", 1)};
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
  p.ranks = n.attributes.get_int(kRanks, 1);
  return p;
}

inline math::LossScaling loss_scaling(const Node& n) {
  const math::LossScaling s;
  return {n.attributes.get_float("growth", s.growth), n.attributes.get_float("backoff", s.backoff),
          n.attributes.get_int("interval", s.interval)};
}

inline kernels::GradientSquaresParams gradient_squares_params(const Graph&, const Node& n) {
  return {n.attributes.get_ints("counts", {})};
}
/// Returns the parameters of a rank whose shards have no padding, such as rank 0: their workspace
/// is large enough for every rank.
inline kernels::GradientSquaresParams full_squares_params(const Graph& g, const Node& n) {
  kernels::GradientSquaresParams p;
  for (const TensorId id : n.inputs) p.counts.push_back(g.tensor(id).type.shape.elements());
  return p;
}

inline kernels::NormOfSquaresParams norm_of_squares_params(const Graph&, const Node& n) {
  return {n.attributes.get_float("max_norm", 0), n.attributes.get_int(kRanks, 1)};
}

inline kernels::ClipGradientParams clip_gradient_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("bound", 0)};
}

inline kernels::AccumulateGradientParams accumulate_gradient_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("share", 1)};
}

inline kernels::MovingAverageParams moving_average_params(const Graph& g, const Node& n) {
  return {input_info(g, n, 0).type.shape.elements(), n.attributes.get_float("decay", 0)};
}

}  // namespace trainyard
