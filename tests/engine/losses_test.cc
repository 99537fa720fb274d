// Tests of the options of the loss and `target: input`, where the input is its own target:
// refusals, and whole runs whose metrics and predictions must be consistent.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/inference/predictor.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/models/loss.h"
#include "src/models/model_json.h"
#include "src/planning/recipe_check.h"
#include "src/train/metric_accumulator.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::make_dataset;
using testing::Recorder;
using testing::Workspace;

const ModelInterface kTenClasses{{4}, 0, TargetForm::kClass, 10};
const ModelInterface kTwoClasses{{4}, 0, TargetForm::kClass, 2};
const ModelInterface kNumber{{4}, 0, TargetForm::kNumeric, 1};
const ModelInterface kText{{8}, 30, TargetForm::kNextToken, 30};

ModelSpec with_loss(const std::string& op, Attributes attributes = {}) {
  ModelSpec spec;
  spec.preset = "mlp";
  spec.loss = {op, std::move(attributes)};
  return spec;
}

ModelSpec autoencoder(Attributes parameters = {}, LossSpec loss = {}) {
  ModelSpec spec;
  spec.preset = "autoencoder";
  spec.parameters = std::move(parameters);
  spec.loss = std::move(loss);
  return spec;
}

TEST(Losses, AreChosenByTheTargetIfTheSpecHasNone) {
  EXPECT_EQ(find_objective({}, kTenClasses)->loss->field, "softmax_cross_entropy");
  EXPECT_EQ(find_objective({}, kText)->loss->field, "softmax_cross_entropy");
  EXPECT_EQ(find_objective({}, kNumber)->loss->field, "mean_squared_error");
  EXPECT_EQ(find_objective(autoencoder(), kTenClasses)->loss->field, "mean_squared_error");
}

struct Refusal {
  std::string name;
  ModelSpec spec;
  ModelInterface data;
  std::vector<std::string> violations;  // "field: description"
};

std::vector<Refusal> refusals() {
  const std::string xent = "SoftmaxCrossEntropyLoss", path = "model.loss.softmax_cross_entropy.";
  ModelSpec odd_target = with_loss("");
  odd_target.target = "output";
  ModelSpec own_input = with_loss("");
  own_input.target = "input";
  return {
      {"Misfit",
       with_loss("HuberLoss"),
       kTwoClasses,
       {"model.loss: huber does not fit a target of classes, expected softmax_cross_entropy, "
        "kl_divergence, sampled_softmax, binary_cross_entropy"}},
      {"ClassesOfANumber",
       with_loss(xent),
       kNumber,
       {"model.loss: softmax_cross_entropy does not fit a numeric target, expected "
        "mean_squared_error, mean_absolute_error, huber"}},
      {"TooManyClasses",
       with_loss("BinaryCrossEntropyLoss"),
       kTenClasses,
       {"model.loss: binary_cross_entropy is for two classes, but the dataset has more, expected "
        "softmax_cross_entropy, kl_divergence, sampled_softmax"}},
      {"NoShares",
       autoencoder({}, {"BinaryCrossEntropyLoss"}),
       kTenClasses,
       {"model.loss: binary_cross_entropy needs an input of shares from 0 to 1, such as the pixels "
        "of an 8-bit image, but this dataset has other values, expected mean_squared_error, "
        "mean_absolute_error, huber"}},
      {"Unknown",
       with_loss("Hinge"),
       kNumber,
       {"model.loss: 'Hinge' is not known, expected mean_squared_error, mean_absolute_error, "
        "huber"}},
      {"WeightCount",
       with_loss(xent, {{"class_weights", std::vector<double>{1, 2}}}),
       kTenClasses,
       {path + "class_weights: has 2 entries, expected 10, one per class"}},
      {"NoWeight",
       with_loss(xent, {{"class_weights", std::vector<int64_t>{0, 0}}}),
       kTwoClasses,
       {path + "class_weights: are all 0, expected at least one above 0"}},
      {"Ignored",
       with_loss(xent, {{"ignore_index", int64_t{10}}}),
       kTenClasses,
       {path + "ignore_index: 10 is not a class, expected 0..9"}},
      {"AllAtOnce",
       with_loss(xent, {{"label_smoothing", 1.0},
                        {"class_weights", std::vector<double>{1, -1}},
                        {"ignore_index", int64_t{-100}},
                        {"delta", 1.0}}),
       kTwoClasses,
       {path + "class_weights: -1 is out of range, expected 0..1000000",
        path + "delta: is not known here, expected label_smoothing, class_weights, ignore_index",
        path + "ignore_index: -100 is out of range, expected 0..4194303",
        path + "label_smoothing: 1 is out of range, expected [0, 1)"}},
      {"Delta",
       with_loss("HuberLoss", {{"delta", 0.0}}),
       kNumber,
       {"model.loss.huber.delta: 0 is out of range, expected (0, 1000000]"}},
      {"Smoothing",
       with_loss("KullbackLeiblerDivergence"),
       kTenClasses,
       {"model.loss.kl_divergence.label_smoothing: is required: a number in (0, 1)"}},
      {"Target", odd_target, kNumber, {"model.target: 'output' is not known, expected input"}},
      {"TextAsItsOwnTarget",
       own_input,
       kText,
       {"model.target: reproduces its input, which must be numbers or an image, not text"}},
      {"TextInAnAutoencoder",
       autoencoder(),
       kText,
       {"model.autoencoder: reproduces its input, which must be numbers or an image, not text"}},
  };
}

TEST(Losses, RefuseMismatchesNamingTheField) {
  for (const Refusal& r : refusals()) {
    SCOPED_TRACE(r.name);
    const auto objective = find_objective(r.spec, r.data);
    ASSERT_FALSE(objective.ok());
    std::vector<std::string> reported;
    for (const FieldViolation& v : objective.error().violations) {
      reported.push_back(v.field + ": " + v.description);
    }
    EXPECT_EQ(reported, r.violations);
  }
}

// A user with several mistakes must learn of all of them in one attempt.
TEST(Losses, AreRefusedTogetherWithLayersAndRecipe) {
  ModelSpec spec;
  spec.layers = {{"", "Gemm", {}, {{"unts", int64_t{3}}}}};
  spec.loss = {"HuberLoss", {{"delta", -1.0}}};
  const auto model = build_model(spec, kNumber, {});
  ASSERT_FALSE(model.ok());
  ASSERT_EQ(model.error().violations.size(), 2u);
  EXPECT_EQ(model.error().violations[0].field, "model.loss.huber.delta");
  EXPECT_EQ(model.error().violations[1].field, "model.layers[0].gemm.unts");
}

// scikit-learn: compute_class_weight("balanced", classes=[0, 1, 2], y=[0] * 6 + [1] * 3 + [2] * 1)
// is [0.5555..., 1.1111..., 3.3333...].
TEST(Losses, BalancedWeightsAreThoseOfScikitLearn) {
  ModelInterface data{{4}, 0, TargetForm::kClass, 3};
  data.class_counts = {6, 3, 1};
  const ModelSpec spec =
      with_loss("SoftmaxCrossEntropyLoss", {{"class_weights", std::string("balanced")}});
  const auto weights = find_objective(spec, data)->attributes.get_floats("class_weights", {});
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_DOUBLE_EQ(weights[0], 10.0 / 18);
  EXPECT_DOUBLE_EQ(weights[1], 10.0 / 9);
  EXPECT_DOUBLE_EQ(weights[2], 10.0 / 3);

  const auto refusal = [&](const ModelInterface& d, const std::string& given) {
    const auto objective =
        find_objective(with_loss("SoftmaxCrossEntropyLoss", {{"class_weights", given}}), d);
    EXPECT_FALSE(objective.ok());
    EXPECT_EQ(objective.error().violations.at(0).field,
              "model.loss.softmax_cross_entropy.class_weights");
    return objective.error().message;
  };
  EXPECT_NE(
      refusal(data, "balance").find("expected balanced or a list of numbers, or numbers by name"),
      std::string::npos);
  data.class_counts = {6, 0, 1};
  EXPECT_NE(refusal(data, "balanced").find("class 1 (counted from 0)"), std::string::npos);
  data.class_counts.clear();
  EXPECT_NE(refusal(data, "balanced").find("upload it again"), std::string::npos);
  EXPECT_NE(refusal(kText, "balanced").find("text has none"), std::string::npos);
}

TEST(Losses, WeightsByClassAreThoseOfTheList) {
  ModelInterface data{{4}, 0, TargetForm::kClass, 4};
  data.class_names = {"1", "10", "2", "caf\u00e9"};
  const auto find = [&](const Attribute& given, const ModelInterface& d) {
    return find_objective(with_loss("SoftmaxCrossEntropyLoss", {{"class_weights", given}}), d);
  };
  const auto weights = [&](const Attribute& given) {
    const Result<Objective> objective = find(given, data);
    EXPECT_TRUE(objective.ok()) << objective.error().message;
    return objective->attributes.get_floats("class_weights", {});
  };
  EXPECT_EQ(weights(NamedInts{{"2", 3}, {"1", 0}}), (std::vector<double>{0, 1, 3, 1}));
  EXPECT_EQ(weights(NamedNumbers{{"10", 2.5}, {"cafe\u0301", 0.5}}),
            (std::vector<double>{1, 2.5, 1, 0.5}))
      << "names are equal in any form of Unicode";

  const auto refusal = [&](const Attribute& given, const ModelInterface& d) {
    const Result<Objective> objective = find(given, d);
    EXPECT_FALSE(objective.ok());
    return objective.ok() ? "" : objective.error().message;
  };
  const std::string field = "model.loss.softmax_cross_entropy.class_weights";
  EXPECT_EQ(refusal(NamedInts{{"cat", 2}}, data),
            field +
                ": 'cat' is not a class of the dataset, expected '1', '10', '2', "
                "'caf\\xc3\\xa9'");
  EXPECT_EQ(refusal(NamedNumbers{{"2", -0.5}}, data),
            "model.loss.softmax_cross_entropy: class_weights.2: -0.5 is out of range, expected "
            "0..1000000");
  EXPECT_EQ(refusal(NamedInts{{"1", 0}, {"10", 0}, {"2", 0}, {"caf\u00e9", 0}}, data),
            field + ": are all 0, expected at least one above 0");
  data.class_names = {"cats", "dogs", "mice", "rats"};
  EXPECT_EQ(refusal(NamedInts{{"dog", 2}}, data),
            field + ": 'dog' is not a class of the dataset, did you mean 'dogs'?");
  EXPECT_EQ(refusal(NamedInts{{"dog", 2}}, kText),
            field + ": names classes, but text has none, expected a list of numbers");
  data.class_names.clear();
  EXPECT_NE(refusal(NamedInts{{"dog", 2}}, data).find("at most 65536 classes"), std::string::npos);
}

TEST(Losses, SurviveTheModelFile) {
  const ModelSpec spec =
      with_loss("SoftmaxCrossEntropyLoss",
                {{"class_weights", std::vector<double>{1, 0.5}}, {"label_smoothing", 0.0}});
  const std::string text = model_to_json(spec);
  const ModelSpec read = model_from_json(text).value();
  EXPECT_EQ(read.loss.op, spec.loss.op);
  EXPECT_EQ(read.loss.attributes, spec.loss.attributes);
  EXPECT_EQ(model_to_json(read), text);
  for (const Attribute& named :
       {Attribute(NamedInts{{"cat", 2}, {"dog", 1}}), Attribute(NamedNumbers{{"cat", 2.5}})}) {
    const ModelSpec by_name = with_loss("SoftmaxCrossEntropyLoss", {{"class_weights", named}});
    EXPECT_EQ(model_from_json(model_to_json(by_name))->loss.attributes, by_name.loss.attributes);
  }
  // The form written before losses had attributes.
  EXPECT_EQ(model_to_json(model_from_json(R"({"loss":"MeanSquaredError"})").value()),
            R"({"loss":"MeanSquaredError"})");
}

// One logit z is equivalent to two scores 0 and z, so all metrics of the two must be equal.
TEST(Losses, OneLogitIsMeasuredAsTwo) {
  const std::vector<std::string> names = {"loss",     "accuracy", "precision_macro", "recall_macro",
                                          "f1_macro", "roc_auc",  "confusion_matrix"};
  MetricAccumulator one(names,
                        find_objective(with_loss("BinaryCrossEntropyLoss"), kTwoClasses).value());
  MetricAccumulator two(names, find_objective({}, kTwoClasses).value());
  const std::vector<float> logits = {-3, 0.5f, 0, 2, -0.25f, 1.5f, -7};
  const std::vector<int64_t> labels = {0, 1, 1, 0, 1, 1, 0};
  for (size_t i = 0; i < logits.size(); ++i) {
    one.add_scores(std::vector<float>{logits[i]}, labels[i]);
    two.add_scores(std::vector<float>{0, logits[i]}, labels[i]);
  }
  for (const std::string& name : names) {
    if (name == "confusion_matrix") continue;
    EXPECT_NEAR(one.value(name), two.value(name), 1e-15) << name;
  }
  EXPECT_EQ(one.confusion(), two.confusion());
  // Computed by hand: logits above 0 (0.5, 2 and 1.5) are class 1, and 0 itself is class 0. Of the
  // 4 * 3 pairs of a row of each class, 8 are in order: the wrong 4 are those with the logit 2.
  EXPECT_EQ(one.confusion(), (std::vector<std::vector<int64_t>>{{2, 1}, {2, 2}}));
  EXPECT_DOUBLE_EQ(one.value("accuracy"), 4.0 / 7);
  EXPECT_DOUBLE_EQ(one.value("roc_auc"), 8.0 / 12);
}

TEST(Losses, IgnoredRowsCountInNoMetric) {
  const Objective objective =
      find_objective(with_loss("SoftmaxCrossEntropyLoss", {{"ignore_index", int64_t{1}}}),
                     {{4}, 0, TargetForm::kClass, 3})
          .value();
  MetricAccumulator m({"loss", "accuracy", "confusion_matrix"}, objective);
  EXPECT_TRUE(std::isnan(m.value("accuracy")));
  m.add_scores(std::vector<float>{0, 9, 0}, 1);
  EXPECT_TRUE(std::isnan(m.value("loss")));
  m.add_scores(std::vector<float>{0, 0, 0}, 0);
  EXPECT_DOUBLE_EQ(m.value("accuracy"), 1);
  EXPECT_NEAR(m.value("loss"), std::log(3.0), 1e-15);
  EXPECT_EQ(m.confusion()[1], std::vector<int64_t>(3));
}

TrainJob loss_job_in(const Workspace& w, ModelSpec model) {
  TrainJob job;
  job.model = std::move(model);
  job.recipe.epochs = 12;
  job.recipe.batch_size = 16;
  job.recipe.optimizer = default_optimizer("adam");
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.validation_split = 0.2;
  job.dataset = w / "dataset";
  job.checkpoints = w / "checkpoints";
  job.model_output = w / "model";
  return job;
}

TrainResult train_here(const TrainJob& job) {
  const auto backend = testing::make_tested_backend(1);
  Recorder recorder;
  Result<TrainResult> result = train(job, *backend, local_files(), recorder, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : TrainResult{};
}

double metric(const TrainResult& result, const std::string& key) {
  for (const MetricPoint& m : result.final_metrics) {
    if (m.key == key) return m.value;
  }
  ADD_FAILURE() << key << " is not reported";
  return 0;
}

std::vector<Prediction> predict_here(const Workspace& w, const std::string& csv) {
  const auto backend = testing::make_tested_backend(1);
  const auto predictor = Predictor::open(w / "model", *backend).value();
  return predictor->predict(parse_raw_rows(predictor->schema(), "csv", csv).value());
}

/// Makes a dataset of four columns; the class "a" or "b" is the sign of the sum of two of them.
void make_two_classes(const Workspace& w, int rows, int test_rows) {
  const auto write = [&](const std::filesystem::path& path, int first, int count) {
    std::ofstream out(path);
    out << "x0,x1,x2,x3,y\n";
    for (int i = first; i < first + count; ++i) {
      const double a = std::sin(i * 1.7), b = std::cos(i * 0.9);
      out << a << ',' << b << ',' << std::sin(i * 3.1) << ',' << i % 5 << ','
          << (a + 0.5 * b > 0.2 ? "b" : "a") << '\n';
    }
  };
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  write(w / "rows.csv", 0, rows);
  write(w / "test.csv", rows, test_rows);
  request.sources = {{"data", w / "rows.csv"}, {"test", w / "test.csv"}};
  ASSERT_TRUE(ingest(request, w / "dataset", local_files()).ok());
}

// Every third row has class z, which no column predicts.
TEST(Losses, IgnoredRowsCountInNoTrainingAccuracy) {
  const Workspace w;
  std::ofstream out(w / "rows.csv");
  out << "x,y\n";
  for (int i = 0; i < 192; ++i) {
    out << (i % 2 == 0 ? "1," : "-1,") << (i % 3 == 0 ? "z" : i % 2 == 0 ? "a" : "b") << '\n';
  }
  out.close();
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.sources = {{"data", w / "rows.csv"}};
  ASSERT_TRUE(ingest(request, w / "dataset", local_files()).ok());
  const auto backend = testing::make_tested_backend(1);
  Recorder r;
  ASSERT_TRUE(
      train(loss_job_in(w, with_loss("SoftmaxCrossEntropyLoss", {{"ignore_index", int64_t{2}}})),
            *backend, local_files(), r, {})
          .ok());
  double sum = 0;
  int64_t steps = 0;
  for (const auto& [step, accuracy] : r.series["train/accuracy"]) {
    if (step <= 100) continue;
    sum += accuracy;
    ++steps;
  }
  EXPECT_GT(sum / static_cast<double>(steps), 0.95) << "a and b are told apart; z is not counted";
}

TEST(Losses, TwoClassesTrainByOneScoreAndArePredicted) {
  const Workspace w;
  make_two_classes(w, 300, 80);
  TrainJob job = loss_job_in(w, with_loss("BinaryCrossEntropyLoss", {{"pos_weight", 2.0}}));
  job.recipe.metrics = {"confusion_matrix"};
  const TrainResult result = train_here(job);
  EXPECT_GT(metric(result, "test/accuracy"), 0.9);
  EXPECT_GT(metric(result, "test/roc_auc"), 0.97);
  EXPECT_EQ(result.classes, (std::vector<std::string>{"a", "b"}));
  const auto predictions = predict_here(w, bytes_of(w / "test.csv"));
  ASSERT_EQ(predictions.size(), 80u);
  std::ifstream test(w / "test.csv");
  std::string line;
  std::getline(test, line);
  int64_t correct = 0;
  for (const Prediction& p : predictions) {
    std::getline(test, line);
    correct += (line.back() == 'b') == (p.label == 1) ? 1 : 0;
    ASSERT_EQ(p.probabilities.size(), 2u);
    EXPECT_NEAR(p.probabilities[0] + p.probabilities[1], 1, 1e-6);
    EXPECT_EQ(p.label, p.probabilities[1] > 0.5f ? 1 : 0);
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(correct) / 80, metric(result, "test/accuracy"));
  const auto& confusion = result.confusion.at("test");
  EXPECT_EQ(confusion[0][0] + confusion[1][1], correct);
}

/// Returns the mean squared difference between the predictions and the rows of the file, in the
/// rows' own units.
double squared_error(const std::vector<Prediction>& predictions, const std::string& csv,
                     size_t columns) {
  std::istringstream rows(csv);
  std::string line;
  std::getline(rows, line);
  double total = 0;
  for (const Prediction& p : predictions) {
    std::getline(rows, line);
    std::istringstream fields(line);
    EXPECT_EQ(p.reconstruction.size(), columns);
    for (const float x : p.reconstruction) {
      std::string field;
      std::getline(fields, field, ',');
      total += std::pow(static_cast<double>(x) - std::stod(field), 2);
    }
  }
  return total / static_cast<double>(predictions.size() * columns);
}

// Pixels are scaled to [0, 1] for the model; predictions must be pixels again, as accurate as the
// metrics say.
TEST(Autoencoder, ReconstructsImagesInTheirOwnUnits) {
  // The pixels' own variance is 17. Divided by 255 they are all dark, and there is little more to
  // learn: a constant medium gray has an error of 15,000.
  for (const auto& [loss, bound] :
       {std::pair("BinaryCrossEntropyLoss", 20.0), std::pair("MeanSquaredError", 12.0)}) {
    SCOPED_TRACE(loss);
    const Workspace w;
    make_dataset(w, true, 200, 40);
    const TrainJob job = loss_job_in(
        w, autoencoder({{"latent", int64_t{16}}, {"channels", std::vector<int64_t>{8}}}, {loss}));
    const TrainResult result = train_here(job);
    const auto predictions = predict_here(w, bytes_of(w / "test.csv"));
    const double error = squared_error(predictions, bytes_of(w / "test.csv"), 64);
    // For standardized pixels the unit is the deviation of the training rows, for scaled ones 255.
    const auto json = nlohmann::json::parse(bytes_of(w / "model" / "model.json"));
    const double unit = 255 * json["preprocessing"]["image_std"][0].get<double>();
    EXPECT_NEAR(std::sqrt(error) / unit, metric(result, "test/rmse"), 1e-4);
    EXPECT_LT(error, bound);
  }
}

TEST(Autoencoder, ReconstructsRowsInTheirOwnUnits) {
  const Workspace w;
  make_dataset(w, false, 200, 40);
  ModelSpec model = with_loss("");
  model.parameters.set("hidden", std::vector<int64_t>{16});
  model.target = "input";  // the preset implies it; other models must set it
  const TrainResult result = train_here(loss_job_in(w, model));
  EXPECT_LT(metric(result, "test/rmse"), 0.4);
  const double error =
      squared_error(predict_here(w, bytes_of(w / "test.csv")), bytes_of(w / "test.csv"), 5);
  EXPECT_LT(error, 0.4 * 0.4 / 12);  // the variance of columns that are uniform in [0, 1) is 1/12
}

TEST(Autoencoder, MirrorsEveryShapeOfImage) {
  for (const Shape& image : {Shape{1, 1, 1}, Shape{3, 5, 8}, Shape{2, 7, 7}, Shape{1, 28, 28}}) {
    for (const size_t stages : {1u, 2u, 4u}) {
      ModelInterface data = kTenClasses;
      data.input = image;
      const ModelSpec spec = autoencoder({{"channels", std::vector<int64_t>(stages, 3)}});
      const auto model = build_model(spec, data, {.batch_size = 2});
      ASSERT_TRUE(model.ok()) << image.to_string() << model.error().message;
      EXPECT_EQ(model->graph.tensor(model->output).type.shape, Shape({2, image.elements()}));
      EXPECT_EQ(model->target, kNoTensor);
    }
  }
}

TEST(Autoencoder, RefusesWhatItCannotUse) {
  const auto message = [](const ModelSpec& spec, const ModelInterface& data) {
    const auto model = build_model(spec, data, {});
    return model.ok() ? "" : model.error().message;
  };
  ModelInterface image = kTenClasses;
  image.input = {1, 8, 8};
  EXPECT_EQ(message(autoencoder({{"type", std::string("conv")}}), kTenClasses),
            "model.autoencoder.type: conv needs images, but one sample of the dataset is [4]; "
            "expected dense");
  EXPECT_EQ(message(autoencoder({{"hidden", std::vector<int64_t>{8}}}), image),
            "model.autoencoder.hidden: has no effect here; remove it or choose type: dense");
  EXPECT_EQ(message(autoencoder({{"channels", std::vector<int64_t>{8}}}), kTenClasses),
            "model.autoencoder.channels: has no effect here; remove it or choose type: conv");
  ModelSpec layers;
  layers.layers = {{"", "Gemm", {}, {{"units", int64_t{3}}}}};
  layers.target = "input";
  EXPECT_EQ(
      message(layers, image),
      "model.layers[0] 'gemm1': its output is [1, 3], but the dataset needs [N, 1, 8, 8] (the "
      "input itself, or flat); end with a layer of that shape or a gemm layer without units");
}

}  // namespace
}  // namespace trainyard
