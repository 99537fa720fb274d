#include "src/inference/predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/cpu/flush_denormals.h"
#include "kernels/math/activations.h"
#include "src/artifact/model_artifact.h"
#include "src/data/limits.h"
#include "src/data/load/loader.h"
#include "src/inference/inference.h"
#include "src/train/evaluate.h"

namespace trainyard {

namespace {

std::vector<float> softmax(std::span<const float> logits) {
  const kernels::cpu::FlushDenormals while_computing;
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - top);
  std::vector<float> p(logits.size());
  for (size_t k = 0; k < p.size(); ++k) {
    p[k] = static_cast<float>(std::exp(static_cast<double>(logits[k]) - top) / sum);
  }
  return p;
}

/// Keeps only the kTopClasses most probable classes; of equal ones the first.
void keep_top(Prediction& p) {
  p.top.resize(p.probabilities.size());
  std::iota(p.top.begin(), p.top.end(), int64_t{0});
  const auto probability = [&](int64_t k) { return p.probabilities[static_cast<size_t>(k)]; };
  std::ranges::partial_sort(p.top, p.top.begin() + kTopClasses, [&](int64_t a, int64_t b) {
    return std::pair(probability(b), a) < std::pair(probability(a), b);
  });
  p.top.resize(static_cast<size_t>(kTopClasses));
  p.top.shrink_to_fit();
  std::vector<float> kept;
  for (const int64_t k : p.top) kept.push_back(probability(k));
  p.probabilities = std::move(kept);
}

class LoadedPredictor final : public Predictor {
 public:
  LoadedPredictor(ModelInfo info, Objective objective, std::unique_ptr<Inference> inference)
      : info_(std::move(info)),
        objective_(std::move(objective)),
        transform_(info_.schema, info_.preprocessing),
        inference_(std::move(inference)),
        batch_(predict_batch(objective_.interface)),
        output_(static_cast<size_t>(batch_ * objective_.interface.outputs)) {}

  const DatasetSchema& schema() const override { return info_.schema; }

  // One program serves requests of any size; the last batch is padded with copies of its last row.
  // A row's result depends neither on its position in the batch nor on the other rows.
  std::vector<std::vector<Prediction>> predict_together(std::span<const RawRows> rows) override {
    std::vector<std::vector<Prediction>> predictions(rows.size());
    std::vector<size_t> owners;  // for each row in input_, the index of its RawRows
    for (size_t i = 0; i < rows.size(); ++i) {
      const Partition partition = rows[i].view();
      predictions[i].reserve(static_cast<size_t>(rows[i].rows));
      for (int64_t first = 0; first < rows[i].rows;) {
        const int64_t free = batch_ - std::ssize(owners);
        std::vector<int64_t> taken(static_cast<size_t>(std::min(free, rows[i].rows - first)));
        std::iota(taken.begin(), taken.end(), first);
        fill_batch(transform_, partition, taken, part_);
        const std::span<const std::byte> bytes = part_.input_bytes();
        input_.insert(input_.end(), bytes.begin(), bytes.end());
        owners.insert(owners.end(), taken.size(), i);
        first += std::ssize(taken);
        if (std::ssize(owners) == batch_) compute(owners, predictions);
      }
    }
    if (!owners.empty()) compute(owners, predictions);
    return predictions;
  }

 private:
  void compute(std::vector<size_t>& owners, std::vector<std::vector<Prediction>>& predictions) {
    const size_t row_bytes = input_.size() / owners.size();
    while (input_.size() < row_bytes * static_cast<size_t>(batch_)) {
      input_.resize(input_.size() + row_bytes);
      std::copy(input_.end() - 2 * static_cast<std::ptrdiff_t>(row_bytes),
                input_.end() - static_cast<std::ptrdiff_t>(row_bytes),
                input_.end() - static_cast<std::ptrdiff_t>(row_bytes));
    }
    inference_->run(input_);
    inference_->read_output(output_);
    for (size_t i = 0; i < owners.size(); ++i) {
      predictions[owners[i]].push_back(to_prediction(static_cast<int64_t>(i)));
    }
    input_.clear();
    owners.clear();
  }

  Prediction to_prediction(int64_t row) const {
    const auto outputs = static_cast<size_t>(objective_.interface.outputs);
    const auto values =
        std::span<const float>(output_).subspan(static_cast<size_t>(row) * outputs, outputs);
    Prediction p;
    if (objective_.interface.classification()) {
      const ClassScores scores(values);
      p.label = argmax(scores.get());
      p.probabilities = softmax(scores.get());
      if (std::ssize(p.probabilities) > kClassesListedMax) keep_top(p);
    } else if (objective_.interface.target == TargetForm::kInput) {
      p.reconstruction.assign(values.begin(), values.end());
      if (objective_.unit_input()) {
        for (float& x : p.reconstruction) x = math::Sigmoid::f(x);
      }
      transform_.restore_input(p.reconstruction);
    } else {
      p.value = transform_.restore_target(values[0]);
    }
    return p;
  }

  ModelInfo info_;
  Objective objective_;
  RowTransform transform_;
  std::unique_ptr<Inference> inference_;
  Batch part_;                    // rows of one caller
  std::vector<std::byte> input_;  // the program's input batch
  const int64_t batch_;
  std::vector<float> output_;
};

}  // namespace

std::vector<Prediction> Predictor::predict(const RawRows& rows) {
  return std::move(predict_together({&rows, 1})[0]);
}

Result<std::unique_ptr<Predictor>> Predictor::open(const std::filesystem::path& folder,
                                                   Backend& backend) {
  ASSIGN_OR_RETURN(LoadedModel loaded, read_model(folder));
  if (loaded.info.schema.next_token()) {
    return make_error(
        ErrorCode::kFailedPrecondition, "PREDICT_UNSUPPORTED",
        "the model continues text and cannot predict rows; generate text with it instead");
  }
  ASSIGN_OR_RETURN(BoundProgram bound,
                   compile_inference(loaded.info.model, loaded.info.interface(),
                                     predict_batch(loaded.objective.interface), nullptr,
                                     loaded.info.precision, {}, backend.traits()));
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::open(std::move(bound), loaded.weights, backend));
  return std::unique_ptr<Predictor>(std::make_unique<LoadedPredictor>(
      std::move(loaded.info), std::move(loaded.objective), std::move(inference)));
}

}  // namespace trainyard
