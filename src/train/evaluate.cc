#include "src/train/evaluate.h"

#include <algorithm>
#include <cmath>

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
  const ModelInterface interface = schema.interface();
  const auto width = static_cast<size_t>(interface.input.elements());
  const auto outputs = static_cast<size_t>(interface.outputs);
  const auto batch = static_cast<size_t>(session.evaluation_batch());
  std::vector<float> input(batch * width);
  double loss = 0;
  double absolute = 0;
  int64_t correct = 0;
  for (size_t first = 0; first < rows.size(); first += batch) {
    const size_t count = std::min(batch, rows.size() - first);
    for (size_t i = 0; i < batch; ++i) {
      const int64_t row = rows[first + std::min(i, count - 1)];
      transform_row(schema, preprocessing, partition, row, input.data() + i * width);
    }
    const std::span<const float> output = session.evaluate(std::as_bytes(std::span(input)));
    for (size_t i = 0; i < count; ++i) {
      const auto row = static_cast<size_t>(rows[first + i]);
      if (interface.classification()) {
        const std::span<const float> logits = output.subspan(i * outputs, outputs);
        const int64_t label = partition.target_class[row];
        loss += cross_entropy(logits, label);
        correct += argmax(logits) == label ? 1 : 0;
      } else {
        const double target = partition.target_numeric[row];
        const double expected = (target - preprocessing.target_mean) / preprocessing.target_std;
        const double predicted = output[i];
        loss += (predicted - expected) * (predicted - expected);
        absolute +=
            std::fabs(predicted * preprocessing.target_std + preprocessing.target_mean - target);
      }
    }
  }
  Evaluation e;
  e.rows = static_cast<int64_t>(rows.size());
  const auto n = static_cast<double>(e.rows);
  e.loss = loss / n;
  e.accuracy = static_cast<double>(correct) / n;
  e.mae = absolute / n;
  return e;
}

std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix,
                                    bool classification, int64_t step) {
  return {{prefix + "/loss", step, e.loss},
          classification ? MetricPoint{prefix + "/accuracy", step, e.accuracy}
                         : MetricPoint{prefix + "/mae", step, e.mae}};
}

}  // namespace trainyard
