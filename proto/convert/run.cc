#include "proto/convert/run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/data/limits.h"
#include "src/job/confusion.h"

namespace trainyard {

namespace {

void set_names(const std::vector<std::string>& names, v1::InitialWeightsReport::Names& out) {
  constexpr size_t kNamesMax = 50;
  out.set_count(std::ssize(names));
  const auto shown = std::span(names).first(std::min(names.size(), kNamesMax));
  out.mutable_names()->Add(shown.begin(), shown.end());
}

}  // namespace

v1::InitialWeightsReport to_proto(const InitialWeightsReport& report) {
  v1::InitialWeightsReport out;
  out.set_source(report.source);
  set_names(report.taken, *out.mutable_taken());
  set_names(report.left_out, *out.mutable_left_out());
  set_names(report.missing, *out.mutable_missing());
  set_names(report.mismatched, *out.mutable_mismatched());
  set_names(report.unused, *out.mutable_unused());
  set_names(report.unneeded, *out.mutable_unneeded());
  out.set_naming(report.naming);
  return out;
}

v1::WeightTensor to_proto(const FileTensor& tensor) {
  v1::WeightTensor out;
  out.set_name(tensor.name);
  out.set_dtype(tensor.dtype);
  out.mutable_shape()->Add(tensor.shape.dims().begin(), tensor.shape.dims().end());
  if (tensor.offset != FileTensor::kNoOffset) out.set_offset(tensor.offset);
  return out;
}

FileTensor to_engine(const v1::WeightTensor& tensor) {
  return {tensor.name(), tensor.dtype(), Shape({tensor.shape().begin(), tensor.shape().end()}),
          tensor.has_offset() ? tensor.offset() : FileTensor::kNoOffset};
}

v1::Recipe::Precision to_proto(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return v1::Recipe::FP32;
    case Precision::kTf32:
      return v1::Recipe::TF32;
    case Precision::kBf16:
      return v1::Recipe::BF16;
    case Precision::kFp16:
      return v1::Recipe::FP16;
  }
  return v1::Recipe::PRECISION_UNSPECIFIED;
}

Precision to_engine(v1::Recipe::Precision precision) {
  for (const Precision p : {Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    if (to_proto(p) == precision) return p;
  }
  return Precision::kFp32;
}

v1::RunPlan to_proto(const RunPlan& plan) {
  v1::RunPlan out;
  out.set_parameter_count(plan.parameter_count);
  out.set_trained_parameter_count(plan.trained_parameter_count);
  out.set_steps_total(plan.steps_total);
  out.set_steps_per_epoch(plan.steps_per_epoch);
  out.set_train_rows(plan.train_rows);
  out.set_validation_rows(plan.validation_rows);
  out.set_test_rows(plan.test_rows);
  if (plan.initial_weights) *out.mutable_initial_weights() = to_proto(*plan.initial_weights);
  out.set_flops_per_step(plan.flops_per_step);
  out.set_precision(to_proto(plan.precision));
  auto* checkpoints = out.mutable_checkpoints();
  checkpoints->set_size_bytes(plan.checkpoints.size_bytes);
  checkpoints->set_lost_steps_max(plan.checkpoints.lost_steps_max);
  checkpoints->set_lost_seconds_max(plan.checkpoints.lost_seconds_max);
  auto* memory = out.mutable_memory();
  memory->set_parameter_bytes(plan.memory.parameter_bytes);
  memory->set_state_bytes(plan.memory.state_bytes);
  memory->set_optimizer_bytes(plan.memory.optimizer_bytes);
  memory->set_gradient_bytes(plan.memory.gradient_bytes);
  memory->set_activation_bytes(plan.memory.activation_bytes);
  memory->set_input_bytes(plan.memory.input_bytes);
  memory->set_workspace_bytes(plan.memory.workspace_bytes);
  memory->set_dataset_bytes(plan.dataset_bytes);
  memory->set_host_bytes(plan.host_bytes);
  memory->set_mapped_bytes(plan.memory.mapped_bytes);
  memory->set_mapped_parts(plan.mapped_parts);
  for (const std::string& warning : plan.warnings) out.add_warnings(warning);
  for (const PlannedExchange& exchange : plan.exchanges) {
    v1::Exchange* to = out.add_exchanges();
    to->set_kind(exchange.kind);
    to->set_count(exchange.count);
    to->set_bytes(exchange.bytes);
    to->set_sent_bytes(exchange.sent_bytes);
    to->set_axis(exchange.axis);
  }
  out.set_shard_saved_bytes(plan.shard_saved_bytes);
  out.set_head_saved_bytes(plan.head_saved_bytes);
  out.set_mlp_saved_bytes(plan.mlp_saved_bytes);
  for (const PlannedPair& pair : plan.pairs) {
    v1::SplitPair* to = out.add_split_pairs();
    to->set_first(pair.first);
    to->set_second(pair.second);
    to->set_units(pair.units);
    to->set_saved_bytes(pair.saved_bytes);
    to->set_exchanged_bytes(pair.exchanged_bytes);
  }
  out.set_parameter_saved_bytes(plan.parameter_saved_bytes);
  return out;
}

v1::RunTimes to_proto(const RunTimes& times) {
  v1::RunTimes out;
  out.set_steps(times.steps);
  out.set_step_seconds(times.step_seconds);
  out.set_step_seconds_low(times.step_seconds_low);
  out.set_step_seconds_high(times.step_seconds_high);
  out.set_steps_seconds(times.steps_seconds);
  out.set_evaluations(times.evaluations);
  out.set_evaluations_seconds(times.evaluations_seconds);
  out.set_checkpoints(times.checkpoints);
  out.set_checkpoints_seconds(times.checkpoints_seconds);
  out.set_data_wait_seconds(times.data_wait_seconds);
  return out;
}

v1::Recipe::Recompute to_proto(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return v1::Recipe::NONE;
    case Recompute::kBlocks:
      return v1::Recipe::BLOCKS;
    case Recompute::kFull:
      return v1::Recipe::FULL;
  }
  return v1::Recipe::RECOMPUTE_UNSPECIFIED;
}

std::vector<v1::Resources::Shard> to_proto(Shard shard) {
  std::vector<v1::Resources::Shard> parts;
  for (const Shard part : shard_parts(shard)) {
    switch (part) {
      case Shard::kNone:
        break;
      case Shard::kOptimizer:
        parts.push_back(v1::Resources::OPTIMIZER);
        break;
      case Shard::kHead:
        parts.push_back(v1::Resources::HEAD);
        break;
      case Shard::kParameters:
        parts.push_back(v1::Resources::PARAMETERS);
        break;
      case Shard::kMlp:
        parts.push_back(v1::Resources::MLP);
        break;
    }
  }
  if (parts.empty()) parts.push_back(v1::Resources::NONE);
  return parts;
}

int64_t total_bytes(const v1::MemoryPlan& m) {
  return m.parameter_bytes() + m.state_bytes() + m.optimizer_bytes() + m.gradient_bytes() +
         m.activation_bytes() + m.input_bytes() + m.workspace_bytes() + m.dataset_bytes();
}

int64_t own_bytes_on_cpu(const v1::MemoryPlan& m) {
  return total_bytes(m) - m.dataset_bytes() + m.host_bytes();
}

int64_t bytes_on_cpu(const v1::MemoryPlan& m) { return own_bytes_on_cpu(m) + m.mapped_bytes(); }

int64_t bytes_on_gpu(const v1::MemoryPlan& m) { return total_bytes(m) + 2 * m.mapped_bytes(); }

v1::MetricBatch to_proto(std::span<const MetricPoint> points) {
  v1::MetricBatch batch;
  std::map<std::string_view, v1::MetricSeries*> by_key;
  for (const MetricPoint& point : points) {
    v1::MetricSeries*& series = by_key[point.key];
    if (series == nullptr) {
      series = batch.add_series();
      series->set_key(point.key);
    }
    if (!std::isfinite(point.value)) {
      auto* mark = series->add_non_finite();
      mark->set_index(series->values_size());
      mark->set_kind(std::isnan(point.value) ? v1::NonFinite::NOT_A_NUMBER
                     : point.value > 0       ? v1::NonFinite::POSITIVE_INFINITY
                                             : v1::NonFinite::NEGATIVE_INFINITY);
    }
    series->add_steps(point.step);
    series->add_values(std::isfinite(point.value) ? point.value : 0.0);
  }
  return batch;
}

std::vector<v1::ConfusionMatrix> to_proto(const ConfusionMatrices& matrices,
                                          const std::vector<std::string>& classes) {
  constexpr size_t kMatrixClassesMax = 64, kMistakesMax = 20;
  std::vector<v1::ConfusionMatrix> out;
  for (const auto& [rows_of, counts] : matrices) {
    v1::ConfusionMatrix& matrix = out.emplace_back();
    matrix.set_rows_of(rows_of);
    if (classes.size() <= kMatrixClassesMax) {
      matrix.mutable_classes()->Add(classes.begin(), classes.end());
      for (const auto& row : counts) {
        matrix.add_rows()->mutable_counts()->Add(row.begin(), row.end());
      }
    }
    for (const Mistake& mistake : most_confused(counts, kMistakesMax)) {
      auto* to = matrix.add_mistakes();
      to->set_label(classes.at(mistake.label));
      to->set_prediction(classes.at(mistake.prediction));
      to->set_count(mistake.count);
    }
  }
  return out;
}

v1::EvaluateResponse to_proto(const ModelEvaluation& evaluation) {
  v1::EvaluateResponse out;
  out.set_rows(evaluation.partition == "test" ? v1::EvaluateRequest::TEST
                                              : v1::EvaluateRequest::TRAIN);
  out.set_row_count(evaluation.rows);
  for (const auto& [name, value] : evaluation.values) (*out.mutable_metrics())[name] = value;
  for (const std::string& name : evaluation.ignored_columns) out.add_ignored_columns(name);
  if (evaluation.confusion.empty()) return out;
  const std::vector<std::string>& classes = evaluation.target.classes;
  *out.mutable_confusion() =
      to_proto(ConfusionMatrices{{evaluation.partition, evaluation.confusion}}, classes).front();
  const std::vector<ClassFigures> figures = class_figures(evaluation.confusion);
  for (size_t k = 0; k < figures.size(); ++k) {
    v1::EvaluateResponse::ClassFigures& to = *out.add_classes();
    to.set_label(classes.at(k));
    to.set_row_count(figures[k].rows);
    to.set_precision(figures[k].precision);
    to.set_recall(figures[k].recall);
    to.set_f1(figures[k].f1);
  }
  return out;
}

v1::PredictResponse to_proto(std::span<const Prediction> predictions, const RawRows& rows,
                             const DatasetSchema& schema) {
  v1::PredictResponse out;
  const bool reconstructs = !predictions.empty() && !predictions[0].reconstruction.empty();
  out.set_classification(schema.target.kind == TargetSchema::Kind::kClass && !reconstructs);
  const std::vector<std::string>& classes = schema.target.classes;
  if (out.classification() && std::ssize(classes) <= kClassesListedMax) {
    for (const std::string& name : classes) out.add_classes(name);
  }
  for (const Prediction& p : predictions) {
    v1::Prediction* to = out.add_predictions();
    if (reconstructs) {
      to->mutable_reconstruction()->Add(p.reconstruction.begin(), p.reconstruction.end());
    } else if (out.classification()) {
      to->set_label(classes.at(static_cast<size_t>(p.label)));
      to->set_label_index(p.label);
      to->mutable_probabilities()->Add(p.probabilities.begin(), p.probabilities.end());
      for (const int64_t k : p.top) {
        to->add_top_indices(k);
        to->add_top_labels(classes.at(static_cast<size_t>(k)));
      }
    } else {
      to->set_value(p.value);
    }
  }
  for (const std::string& name : rows.ignored_columns) out.add_ignored_columns(name);
  out.set_unseen_count(rows.unseen_count);
  for (const RawRows::Unseen& unseen : rows.unseen) {
    auto* to = out.mutable_predictions(static_cast<int>(unseen.row))->add_unseen();
    to->set_column(unseen.column);
    to->set_value(unseen.value);
  }
  return out;
}

v1::Outcome to_outcome(const Error& error) {
  v1::Outcome out;
  out.set_kind(error.code == ErrorCode::kCancelled ? v1::Outcome::STOPPED : v1::Outcome::REFUSED);
  out.set_code(static_cast<int>(error.code));
  out.set_reason(error.reason);
  out.set_message(error.message);
  out.mutable_metadata()->insert(error.metadata.begin(), error.metadata.end());
  return out;
}

Error to_error(const v1::Outcome& outcome) {
  Error error;
  switch (outcome.code()) {  // a worker's report is untrusted: only known codes are accepted
    case 1:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
    case 14:
    case 15:
    case 16:
      error.code = static_cast<ErrorCode>(outcome.code());
      break;
    default:
      error.code = ErrorCode::kInternal;
  }
  error.reason = outcome.reason().empty() ? "INTERNAL" : outcome.reason();
  error.message = outcome.message();
  error.metadata.insert(outcome.metadata().begin(), outcome.metadata().end());
  return error;
}

}  // namespace trainyard
