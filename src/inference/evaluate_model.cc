#include "src/inference/evaluate_model.h"

#include <algorithm>

#include "src/artifact/model_artifact.h"
#include "src/data/align.h"
#include "src/data/load/loader.h"
#include "src/data/load/packing.h"
#include "src/data/load/windows.h"
#include "src/inference/inference.h"
#include "src/inference/predictor.h"
#include "src/job/metrics.h"
#include "src/train/evaluate.h"

namespace trainyard {
namespace {

// The number of windows per run of the program. It is smaller than the number of rows of other
// models, since each token of a window has its own row of logits.
constexpr int64_t kWindowsBatch = 4;

class InferenceModel final : public BatchModel {
 public:
  InferenceModel(Inference& inference, int64_t batch, int64_t row_size)
      : inference_(inference), batch_(batch), row_(static_cast<size_t>(row_size)) {}
  int64_t evaluation_batch() const override { return batch_; }
  void evaluate(std::span<const std::byte> input,
                std::span<const std::byte> positions = {}) override {
    inference_.run(input, positions);
  }
  std::span<const float> evaluation_output(int64_t row) override {
    inference_.read_output(row_, row * std::ssize(row_));
    return row_;
  }

 private:
  Inference& inference_;
  const int64_t batch_;
  std::vector<float> row_;
};

Result<std::string> pick_partition(const std::string& asked, const DatasetSchema& schema) {
  if (asked.empty()) return std::string(schema.test_rows > 0 ? "test" : "train");
  if (asked == "test" && schema.test_rows == 0) {
    return field_error("EVALUATE_ROWS_MISSING", "rows",
                       "the dataset has no test set; use its TRAIN rows");
  }
  return asked;
}

Result<std::vector<std::string>> pick_metrics(const std::vector<std::string>& asked,
                                              const ModelInterface& interface) {
  Recipe recipe;
  recipe.metrics = asked;
  Violations violations;
  check_metrics(recipe, interface, false, violations);
  if (!violations.empty()) return violations.to_error();
  if (interface.target == TargetForm::kClass && interface.classes() <= kConfusionClassesMax &&
      !reports(recipe, "confusion_matrix")) {
    recipe.metrics.push_back("confusion_matrix");
  }
  return evaluation_metrics(recipe, interface);
}

/// Returns the start of all samples of a partition. A stream of `count` tokens gives adjacent
/// windows without overlap.
std::vector<int64_t> all_rows(const DatasetSchema& schema, int64_t count, int64_t context) {
  if (!schema.stream()) return window_starts(0, count, 1);
  return window_starts(0, std::max<int64_t>(count - 1, 0) / context, context);
}

class LoadedEvaluator final : public ModelEvaluator {
 public:
  LoadedEvaluator(ModelInfo info, Objective objective, std::unique_ptr<Inference> inference,
                  int64_t batch, int64_t row_size)
      : info_(std::move(info)),
        objective_(std::move(objective)),
        inference_(std::move(inference)),
        rows_of_(*inference_, batch, row_size) {}

  Result<ModelEvaluation> evaluate(const std::filesystem::path& dataset,
                                   const std::string& partition,
                                   const std::vector<std::string>& metrics) override {
    ASSIGN_OR_RETURN(Dataset data, Dataset::open(dataset, false));
    ModelEvaluation out;
    ASSIGN_OR_RETURN(out.partition, pick_partition(partition, data.schema()));
    const bool test = out.partition == "test";
    const int64_t context = info_.preprocessing.context_length;
    if (data.schema().documents) {
      data.pack(pack_all(data.schema(), data.train(), context, true),
                pack_all(data.schema(), data.test(), context, true));
    }
    ASSIGN_OR_RETURN(
        const AlignedRows aligned,
        AlignedRows::align(info_.schema, data.schema(), test ? data.test() : data.train()));

    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     pick_metrics(metrics, objective_.interface));
    const std::vector<int64_t> rows = aligned.view().packed != nullptr
                                          ? window_starts(0, aligned.view().packed->rows(), 1)
                                          : all_rows(data.schema(), aligned.view().rows, context);
    if (rows.empty()) {
      return field_error("EVALUATE_ROWS_MISSING", "dataset",
                         "its " + out.partition + " rows do not contain a whole sample");
    }
    out.rows = std::ssize(rows);
    Evaluator evaluator(rows_of_, info_.schema, info_.preprocessing, objective_, names);
    Evaluation evaluation = evaluator.evaluate(aligned.view(), rows);
    out.values = std::move(evaluation.values);
    out.confusion = std::move(evaluation.confusion);
    out.target = info_.schema.target;
    out.ignored_columns = aligned.ignored_columns();
    return out;
  }

 private:
  const ModelInfo info_;
  const Objective objective_;
  const std::unique_ptr<Inference> inference_;
  InferenceModel rows_of_;
};

}  // namespace

Result<std::unique_ptr<ModelEvaluator>> ModelEvaluator::open(const std::filesystem::path& model,
                                                             Backend& backend) {
  ASSIGN_OR_RETURN(LoadedModel loaded, read_model(model));
  const ModelInfo& info = loaded.info;
  const int64_t batch =
      info.schema.next_token() ? kWindowsBatch : predict_batch(loaded.objective.interface);
  const ModelInterface interface = info.schema.interface(info.preprocessing.context_length);
  ASSIGN_OR_RETURN(BoundProgram bound, compile_inference(info.model, interface, batch, nullptr,
                                                         info.precision, {}, backend.traits()));
  const int64_t row_size = bound.program.graph.tensor(bound.output).type.shape.elements() / batch;
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::open(std::move(bound), loaded.weights, backend));
  return std::unique_ptr<ModelEvaluator>(std::make_unique<LoadedEvaluator>(
      std::move(loaded.info), std::move(loaded.objective), std::move(inference), batch, row_size));
}

Result<ModelEvaluation> evaluate_model(const std::filesystem::path& model,
                                       const std::filesystem::path& dataset,
                                       const std::string& partition,
                                       const std::vector<std::string>& metrics, Backend& backend) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelEvaluator> evaluator,
                   ModelEvaluator::open(model, backend));
  return evaluator->evaluate(dataset, partition, metrics);
}

}  // namespace trainyard
