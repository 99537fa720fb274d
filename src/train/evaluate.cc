#include "src/train/evaluate.h"

#include <algorithm>
#include <tuple>

#include "kernels/math/activations.h"
#include "src/base/check.h"
#include "src/data/load/resident_rows.h"

namespace trainyard {

namespace {

// Returns the number of bytes of each token's text. An unknown token counts as one byte, since its
// own text is not stored.
std::vector<int64_t> bytes_of_tokens(const TextSchema& schema) {
  std::vector<int64_t> bytes;
  for (const std::string& text : token_texts(schema)) {
    bytes.push_back(std::max<int64_t>(std::ssize(text), 1));
  }
  return bytes;
}

}  // namespace

void BatchModel::evaluate_resident(std::span<const kernels::ResidentSample> /*samples*/) {
  TRAINYARD_CHECK(false, "no device holds rows for this model");
}

Evaluator::Evaluator(BatchModel& model, const DatasetSchema& schema,
                     const Preprocessing& preprocessing, const Objective& objective,
                     std::vector<std::string> names)
    : model_(model),
      preprocessing_(preprocessing),
      objective_(objective),
      transform_(schema, preprocessing),
      names_(std::move(names)) {
  if (objective.interface.target == TargetForm::kNextToken)
    token_bytes_ = bytes_of_tokens(schema.text);
}

void Evaluator::run(const Partition& partition, std::span<const int64_t> selected, RowsFrom from) {
  if (from == RowsFrom::kHost) {
    fill_batch(transform_, partition, selected, batch_);
    model_.evaluate(batch_.input_bytes(), std::as_bytes(std::span(batch_.positions)));
    return;
  }
  samples_.clear();
  for (const int64_t row : selected)
    samples_.push_back(resident_sample(transform_, partition, row));
  model_.evaluate_resident(samples_);
  if (objective_.interface.target == TargetForm::kInput) {
    fill_batch(transform_, partition, selected, batch_);
  }
}

/// Returns the class of a row, or the token after position `position` of a window or a row of
/// documents, which is row `i` of the batch.
int32_t Evaluator::label_of(const Partition& partition, int64_t row, size_t i,
                            size_t position) const {
  const auto at = static_cast<size_t>(row);
  if (transform_.documents()) {
    return batch_.target_class[i * static_cast<size_t>(transform_.input_size()) + position];
  }
  return transform_.stream() ? partition.tokens[at + 1 + position] : partition.target_class[at];
}

// Adds the result of row `i` of the batch, which is row `row` of the partition.
void Evaluator::add_row(const Partition& partition, int64_t row, size_t i,
                        std::span<const float> output, MetricAccumulator& metrics) const {
  if (objective_.interface.target == TargetForm::kInput) {
    const auto input = std::span(batch_.input).subspan(i * output.size(), output.size());
    for (size_t k = 0; k < output.size(); ++k) {
      const double y = output[k], x = input[k];
      metrics.add_number(y, x, objective_.unit_input() ? math::Sigmoid::f(y) : y, x);
    }
    return;
  }
  if (objective_.interface.target == TargetForm::kNumeric) {
    // Both numbers lack the target's offset (schema.h): the metrics depend only on differences.
    const double target = partition.target_numeric[static_cast<size_t>(row)];
    const double predicted = output[0];
    metrics.add_number(predicted, (target - preprocessing_.target_mean) / preprocessing_.target_std,
                       predicted * preprocessing_.target_std + preprocessing_.target_mean, target);
    return;
  }
  const auto outputs = static_cast<size_t>(objective_.interface.outputs);
  const size_t positions = output.size() / outputs;  // of a sequence; otherwise 1
  for (size_t t = 0; t < positions; ++t) {
    const int32_t label = label_of(partition, row, i, t);
    if (transform_.documents() && label < 0) continue;
    const int64_t bytes = token_bytes_.empty() ? 1 : token_bytes_[static_cast<size_t>(label)];
    metrics.add_scores(output.subspan(t * outputs, outputs), label, bytes);
  }
}

Evaluation Evaluator::evaluate(const Partition& partition, std::span<const int64_t> rows,
                               const std::function<void()>& after_batch, RowsFrom from) {
  const auto batch = static_cast<size_t>(model_.evaluation_batch());
  MetricAccumulator metrics(names_, objective_);
  std::vector<int64_t> selected;
  for (size_t first = 0; first < rows.size(); first += batch) {
    const std::span<const int64_t> part = rows.subspan(first, std::min(batch, rows.size() - first));
    selected.assign(part.begin(), part.end());
    selected.resize(batch, selected.back());
    run(partition, selected, from);
    for (size_t i = 0; i < part.size(); ++i) {
      add_row(partition, part[i], i, model_.evaluation_output(static_cast<int64_t>(i)), metrics);
    }
    if (after_batch) after_batch();
  }
  Evaluation e;
  for (const std::string& name : names_) {
    if (name != "confusion_matrix") e.values.emplace_back(name, metrics.value(name));
  }
  e.confusion = metrics.confusion();
  return e;
}

std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix, int64_t step) {
  std::vector<MetricPoint> points;
  for (const auto& [name, value] : e.values) points.push_back({prefix + "/" + name, step, value});
  return points;
}

}  // namespace trainyard
