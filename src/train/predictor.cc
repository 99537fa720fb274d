#include "src/train/predictor.h"

#include <algorithm>
#include <cmath>

#include "kernels/math/activations.h"
#include "src/data/load/loader.h"
#include "src/train/evaluate.h"
#include "src/train/inference.h"
#include "src/train/model_artifact.h"

namespace trainyard {

namespace {

// One program serves requests of any size; the last batch of a request is filled up.
constexpr int64_t kPredictBatch = 64;

std::vector<float> softmax(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - top);
  std::vector<float> p(logits.size());
  for (size_t k = 0; k < p.size(); ++k) {
    p[k] = static_cast<float>(std::exp(static_cast<double>(logits[k]) - top) / sum);
  }
  return p;
}

class LoadedPredictor final : public Predictor {
 public:
  LoadedPredictor(ModelInfo info, Objective objective, std::unique_ptr<Inference> inference)
      : info_(std::move(info)),
        objective_(std::move(objective)),
        transform_(info_.schema, info_.preprocessing),
        inference_(std::move(inference)),
        output_(static_cast<size_t>(kPredictBatch * objective_.interface.outputs)) {}

  const DatasetSchema& schema() const override { return info_.schema; }

  Result<std::vector<Prediction>> predict(const RawRows& rows) override {
    const Partition partition = rows.view();
    std::vector<Prediction> predictions;
    predictions.reserve(static_cast<size_t>(rows.rows));
    for (int64_t first = 0; first < rows.rows; first += kPredictBatch) {
      const int64_t count = std::min(kPredictBatch, rows.rows - first);
      std::vector<int64_t> selected(static_cast<size_t>(kPredictBatch));
      for (int64_t i = 0; i < kPredictBatch; ++i) {
        selected[static_cast<size_t>(i)] = first + std::min(i, count - 1);
      }
      fill_batch(transform_, partition, selected, batch_);
      inference_->run(batch_.input_bytes());
      inference_->read_output(output_);
      for (int64_t i = 0; i < count; ++i) predictions.push_back(to_prediction(i));
    }
    return predictions;
  }

 private:
  Prediction to_prediction(int64_t row) const {
    const auto outputs = static_cast<size_t>(objective_.interface.outputs);
    const auto values =
        std::span<const float>(output_).subspan(static_cast<size_t>(row) * outputs, outputs);
    Prediction p;
    if (objective_.interface.classification()) {
      const ClassScores scores(values);
      p.label = argmax(scores.get());
      p.probabilities = softmax(scores.get());
    } else if (objective_.interface.target == TargetForm::kInput) {
      p.reconstruction.assign(values.begin(), values.end());
      if (objective_.unit_input()) {
        for (float& x : p.reconstruction) x = math::Sigmoid::f(x);
      }
      transform_.restore_input(p.reconstruction);
    } else {
      p.value = static_cast<double>(values[0]) * info_.preprocessing.target_std +
                info_.preprocessing.target_mean;
    }
    return p;
  }

  ModelInfo info_;
  Objective objective_;
  RowTransform transform_;
  std::unique_ptr<Inference> inference_;
  Batch batch_;
  std::vector<float> output_;
};

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::open(const std::filesystem::path& folder,
                                                   Backend& backend) {
  ASSIGN_OR_RETURN(LoadedModel loaded, read_model(folder));
  if (loaded.info.schema.stream()) {
    return make_error(ErrorCode::kFailedPrecondition, "PREDICT_UNSUPPORTED",
                      "the model continues text: it has no rows to predict; ask it to generate");
  }
  ASSIGN_OR_RETURN(BoundProgram bound,
                   compile_inference(loaded.info.model, loaded.info.interface(), kPredictBatch,
                                     nullptr, loaded.info.precision, {}, backend.traits()));
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::open(std::move(bound), loaded.weights, backend));
  return std::unique_ptr<Predictor>(std::make_unique<LoadedPredictor>(
      std::move(loaded.info), std::move(loaded.objective), std::move(inference)));
}

}  // namespace trainyard
