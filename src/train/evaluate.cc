#include "src/train/evaluate.h"

#include <algorithm>
#include <tuple>

namespace trainyard {

Evaluator::Evaluator(Session& session, const DatasetSchema& schema,
                     const Preprocessing& preprocessing, std::vector<std::string> names)
    : session_(session),
      preprocessing_(preprocessing),
      interface_(schema.interface()),
      transform_(schema, preprocessing),
      names_(std::move(names)),
      input_(static_cast<size_t>(session.evaluation_batch() * transform_.input_size())) {}

void Evaluator::add_row(const Partition& partition, int64_t row, std::span<const float> output,
                        MetricAccumulator& metrics) const {
  const auto at = static_cast<size_t>(row);
  if (interface_.classification()) {
    metrics.add_scores(output, partition.target_class[at]);
    return;
  }
  const double target = partition.target_numeric[at];
  const double predicted = output[0];
  metrics.add_number(predicted, (target - preprocessing_.target_mean) / preprocessing_.target_std,
                     predicted * preprocessing_.target_std + preprocessing_.target_mean, target);
}

Evaluation Evaluator::evaluate(const Partition& partition, std::span<const int64_t> rows) {
  const auto width = static_cast<size_t>(transform_.input_size());
  const auto outputs = static_cast<size_t>(interface_.outputs);
  const auto batch = static_cast<size_t>(session_.evaluation_batch());
  MetricAccumulator metrics(names_, interface_);
  for (size_t first = 0; first < rows.size(); first += batch) {
    const size_t count = std::min(batch, rows.size() - first);
    for (size_t i = 0; i < batch; ++i) {
      const int64_t row = rows[first + std::min(i, count - 1)];
      transform_.apply(partition, row, input_.data() + i * width);
    }
    const std::span<const float> output = session_.evaluate(std::as_bytes(std::span(input_)));
    for (size_t i = 0; i < count; ++i) {
      add_row(partition, rows[first + i], output.subspan(i * outputs, outputs), metrics);
    }
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

namespace {

constexpr size_t kNameShown = 12;  // characters of a class
constexpr size_t kPairsShown = 20;

std::string cell(std::string text, size_t width) {
  if (text.size() > kNameShown) {
    size_t end = kNameShown;  // not inside a character of several bytes
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
  }
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string most_confused(const std::vector<std::vector<int64_t>>& confusion,
                          const std::vector<std::string>& classes) {
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;  // fewest last
  for (size_t i = 0; i < confusion.size(); ++i) {
    for (size_t j = 0; j < confusion.size(); ++j) {
      if (i != j && confusion[i][j] > 0) pairs.emplace_back(-confusion[i][j], i, j);
    }
  }
  std::ranges::sort(pairs);
  if (pairs.size() > kPairsShown) pairs.resize(kPairsShown);
  std::string text;
  for (const auto& [count, i, j] : pairs) {
    text += "\n" + std::to_string(-count) + " of " + classes[i] + " taken for " + classes[j];
  }
  return text.empty() ? "\nnone" : text;
}

}  // namespace

std::string confusion_text(const std::vector<std::vector<int64_t>>& confusion,
                           const std::vector<std::string>& classes) {
  if (confusion.size() > kConfusionClassesShown) return most_confused(confusion, classes);
  size_t width = 5;
  for (const std::string& name : classes)
    width = std::max(width, std::min(name.size(), kNameShown));
  for (const auto& row : confusion) {
    for (const int64_t count : row) width = std::max(width, std::to_string(count).size());
  }
  ++width;
  std::string text = "\n" + cell("", width);
  for (const std::string& name : classes) text += cell(name, width);
  for (size_t i = 0; i < confusion.size(); ++i) {
    text += "\n" + cell(classes[i], width);
    for (const int64_t count : confusion[i]) text += cell(std::to_string(count), width);
  }
  return text;
}

}  // namespace trainyard
