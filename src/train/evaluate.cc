#include "src/train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "src/data/loader.h"

namespace trainyard {

double cross_entropy(std::span<const float> logits, int64_t label) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - top);
  return top + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(label)]);
}

int64_t argmax(std::span<const float> values) {
  return std::ranges::max_element(values) - values.begin();
}

Evaluation evaluate_rows(Session& session, const DatasetSchema& schema,
                         const Preprocessing& preprocessing, const Partition& partition,
                         std::span<const int64_t> rows) {
  const ModelInterface interface = schema.interface(preprocessing.context_length);
  const RowTransform transform(schema, preprocessing);
  const auto outputs = static_cast<size_t>(interface.outputs);
  const auto batch_size = static_cast<size_t>(session.evaluation_batch());
  Batch batch;
  double loss = 0;
  double absolute = 0;
  int64_t correct = 0;
  int64_t scored = 0;  // rows, or tokens
  for (size_t first = 0; first < rows.size(); first += batch_size) {
    const size_t count = std::min(batch_size, rows.size() - first);
    std::vector<int64_t> selected(rows.begin() + static_cast<int64_t>(first),
                                  rows.begin() + static_cast<int64_t>(first + count));
    selected.resize(batch_size, selected.back());
    fill_batch(transform, partition, selected, batch);
    session.evaluate(batch.input_bytes());
    for (size_t i = 0; i < count; ++i) {
      const std::span<const float> output = session.evaluation_output(static_cast<int64_t>(i));
      if (interface.target == TargetForm::kNumeric) {
        const double target = partition.target_numeric[static_cast<size_t>(selected[i])];
        const double expected = (target - preprocessing.target_mean) / preprocessing.target_std;
        const double predicted = output[0];
        loss += (predicted - expected) * (predicted - expected);
        absolute +=
            std::fabs(predicted * preprocessing.target_std + preprocessing.target_mean - target);
        ++scored;
        continue;
      }
      const size_t positions = output.size() / outputs;
      for (size_t t = 0; t < positions; ++t) {
        const std::span<const float> scores = output.subspan(t * outputs, outputs);
        const int64_t label = batch.target_class[i * positions + t];
        loss += cross_entropy(scores, label);
        correct += argmax(scores) == label ? 1 : 0;
      }
      scored += static_cast<int64_t>(positions);
    }
  }
  Evaluation e;
  e.rows = static_cast<int64_t>(rows.size());
  const auto n = static_cast<double>(scored);
  e.loss = loss / n;
  e.accuracy = static_cast<double>(correct) / n;
  e.mae = absolute / n;
  return e;
}

std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix, bool scores,
                                    int64_t step) {
  return {{prefix + "/loss", step, e.loss},
          scores ? MetricPoint{prefix + "/accuracy", step, e.accuracy}
                 : MetricPoint{prefix + "/mae", step, e.mae}};
}

}  // namespace trainyard
