// Compares every loss with its options, the autoencoders, and tables with embedded categories with
// PyTorch (see tests/golden/make_losses_golden.py): the loss of each of 50 steps must agree within
// 1e-4 relative. Before each step the model is evaluated on the same batch: the loss of the
// evaluation must equal the loss of the training step.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/math/philox.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/models/model_json.h"
#include "src/runtime/backend.h"
#include "src/train/metric_accumulator.h"
#include "src/train/session.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kLossBound = 1e-4;
constexpr double kEvaluationBound = 2e-6;  // float's rounding of the loss and of its terms

const Json& golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/losses.json"));
    return Json::parse(file);
  }();
  return json;
}

int64_t size_of(const char* name) { return golden()[name].get<int64_t>(); }

uint32_t draw(const char* name, int64_t step, int64_t i) {
  return math::philox_u32(golden()["seed"], stream_of("losses/" + std::string(name)),
                          static_cast<uint64_t>(step), static_cast<uint64_t>(i));
}
double uniform(const char* name, int64_t step, int64_t i) {
  return math::uniform01<double>(draw(name, step, i));
}

struct GoldenBatch {
  std::vector<float> input;
  std::vector<int32_t> tokens, labels;
  std::vector<float> numbers;
  std::span<const std::byte> input_bytes() const {
    return tokens.empty() ? std::as_bytes(std::span(input)) : std::as_bytes(std::span(tokens));
  }
  std::span<const std::byte> target_bytes() const {
    return labels.empty() ? std::as_bytes(std::span(numbers)) : std::as_bytes(std::span(labels));
  }
};

// The next functions compute what those of the same names in tests/golden/make_losses_golden.py do.
GoldenBatch features(int64_t step) {
  GoldenBatch b;
  for (int64_t i = 0; i < size_of("batch") * size_of("features"); ++i) {
    b.input.push_back(static_cast<float>(2 * uniform("x", step, i) - 1));
  }
  return b;
}

GoldenBatch class_batch(int64_t step, uint32_t classes) {
  GoldenBatch b = features(step);
  const int64_t width = size_of("features");
  for (int64_t n = 0; n < size_of("batch"); ++n) {
    b.labels.push_back(static_cast<int32_t>(draw("label", step, n) % classes));
    for (int64_t f = 0; f < 3; ++f) {
      b.input[static_cast<size_t>(n * width + b.labels.back() * 3 + f)] += 0.75f;
    }
  }
  return b;
}

GoldenBatch number_batch(int64_t step) {
  GoldenBatch b = features(step);
  for (int64_t n = 0; n < size_of("batch"); ++n) {
    const float* x = b.input.data() + n * size_of("features");
    const double p = x[0], q = x[1], r = x[2];
    b.numbers.push_back(static_cast<float>(3 * p - 2 * q + 4 * (p * r)));
  }
  return b;
}

GoldenBatch token_batch(int64_t step) {
  GoldenBatch b;
  const auto vocabulary = static_cast<uint32_t>(size_of("vocabulary"));
  for (int64_t i = 0; i < size_of("batch") * size_of("tokens"); ++i) {
    const uint32_t token = draw("token", step, i) % vocabulary, next = draw("next", step, i);
    b.tokens.push_back(static_cast<int32_t>(token));
    b.labels.push_back(static_cast<int32_t>((next % 4 == 0 ? next / 4 : token + 1) % vocabulary));
  }
  return b;
}

GoldenBatch table_batch(int64_t step, bool number) {
  GoldenBatch b;
  const Json& columns = golden()["categories"];
  const int64_t numbers = size_of("numbers");
  for (int64_t n = 0; n < size_of("batch"); ++n) {
    std::vector<float> codes;
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::string name = "codes" + std::to_string(c);
      const uint32_t count = columns[c]["count"].get<uint32_t>() + 1;
      codes.push_back(static_cast<float>(draw(name.c_str(), step, n) % count));
    }
    const int32_t label = static_cast<int32_t>(codes[0]) % static_cast<int32_t>(size_of("classes"));
    for (int64_t f = 0; f < numbers; ++f) {
      const double x = 2 * uniform("numbers", step, n * numbers + f) - 1;
      b.input.push_back(static_cast<float>(f == 0 ? x + 0.5 * label : x));
    }
    if (number) {
      b.numbers.push_back(static_cast<float>(label) - b.input[b.input.size() - 3]);
    } else {
      b.labels.push_back(label);
    }
    b.input.insert(b.input.end(), codes.begin(), codes.end());
  }
  return b;
}

GoldenBatch row_batch(int64_t step) {
  GoldenBatch b;
  const int64_t width = size_of("features");
  for (int64_t i = 0; i < size_of("batch") * width; ++i) {
    const int64_t n = i / width, f = i % width;
    const double code = 2 * uniform("code", step, n * 3 + f % 3) - 1;
    const double noise = uniform("noise", step, i) - 0.5;
    b.input.push_back(
        static_cast<float>(code * static_cast<double>(1 + f / 3) * 0.5 + 0.25 * noise));
  }
  return b;
}

GoldenBatch pixel_batch(int64_t step) {
  GoldenBatch b;
  const auto image = golden()["image"].get<std::vector<int64_t>>();
  const int64_t pixels = image[0] * image[1] * image[2], half = image[2] / 2;
  for (int64_t i = 0; i < size_of("batch") * pixels; ++i) {
    const int64_t side = draw("side", step, i / pixels) % 2, column = i % image[2];
    const double x = 0.25 * uniform("pixel", step, i);
    b.input.push_back(static_cast<float>(column / half == side ? x + 0.75 : x));
  }
  return b;
}

GoldenBatch golden_batch(const std::string& form, int64_t step) {
  if (form == "class") return class_batch(step, static_cast<uint32_t>(size_of("classes")));
  if (form == "two_classes") return class_batch(step, 2);
  if (form == "number") return number_batch(step);
  if (form == "token") return token_batch(step);
  if (form.starts_with("table")) return table_batch(step, form == "table_number");
  return form == "row" ? row_batch(step) : pixel_batch(step);
}

ModelInterface interface_of(const std::string& form) {
  const Shape rows{size_of("features")};
  if (form == "two_classes") return {rows, 0, TargetForm::kClass, 2};
  if (form == "number") return {rows, 0, TargetForm::kNumeric, 1};
  if (form == "token") {
    const int64_t vocabulary = size_of("vocabulary");
    return {{size_of("tokens")}, vocabulary, TargetForm::kNextToken, vocabulary};
  }
  // The kind of target in an autoencoder's dataset does not matter.
  ModelInterface interface { rows, 0, TargetForm::kClass, size_of("classes") };
  interface.class_counts = golden()["class_counts"].get<std::vector<int64_t>>();
  if (form.starts_with("table")) {
    int64_t inputs = size_of("numbers");  // one-hot, as in the dataset
    for (const Json& column : golden()["categories"]) {
      interface.categories.push_back({column["name"], column["count"]});
      inputs += interface.categories.back().count;
    }
    interface.input = Shape{inputs};
    if (form == "table_number") interface.target = TargetForm::kNumeric, interface.outputs = 1;
  }
  if (form == "pixel") {
    interface.input = Shape(golden()["image"].get<std::vector<int64_t>>());
    interface.bytes = true;
  }
  return interface;
}

double evaluated_loss(Session& session, const Objective& objective, const GoldenBatch& batch) {
  MetricAccumulator metrics({"loss"}, objective);
  session.evaluate(batch.input_bytes());
  const auto outputs = static_cast<size_t>(objective.interface.outputs);
  for (int64_t n = 0; n < size_of("batch"); ++n) {
    const std::span<const float> row = session.evaluation_output(n);
    const size_t parts = row.size() / outputs;  // positions of a sequence
    for (size_t t = 0; t < parts; ++t) {
      const std::span<const float> output = row.subspan(t * outputs, outputs);
      const auto at = static_cast<size_t>(n) * parts + t;
      if (!batch.labels.empty()) {
        metrics.add_scores(output, batch.labels[at]);
        continue;
      }
      for (size_t k = 0; k < outputs; ++k) {
        const float target =
            (batch.numbers.empty() ? batch.input : batch.numbers)[at * outputs + k];
        metrics.add_number(output[k], target, output[k], target);
      }
    }
  }
  return metrics.value("loss");
}

void run_case(const Json& expected, Backend& backend) {
  const std::string form = expected["form"];
  const ModelSpec model = model_from_json(expected["model"].dump()).value();
  const ModelInterface data = interface_of(form);
  const Objective objective = find_objective(model, data).value();
  Recipe recipe;
  recipe.batch_size = size_of("batch");
  recipe.optimizer = default_optimizer("sgd");
  recipe.optimizer.learning_rate = expected["learning_rate"];
  recipe.optimizer.momentum = 0.9;
  RunPrograms programs = compile_step(model, recipe, data, {}, backend.traits()).value();
  const PersistentLayout layout = persistent_layout(programs.train.program);
  programs.evaluate =
      compile_inference(model, data, recipe.batch_size, &layout, Precision::kFp32).value();
  Session session(std::move(programs), backend);
  session.initialize(golden()["seed"]);
  double worst = 0;
  for (size_t step = 0; step < expected["losses"].size(); ++step) {
    const GoldenBatch batch = golden_batch(form, static_cast<int64_t>(step));
    const double evaluated = evaluated_loss(session, objective, batch);
    Session::StepInputs inputs;
    inputs.input = batch.input_bytes();
    inputs.target = batch.target_bytes();
    inputs.step = static_cast<int64_t>(step);
    inputs.learning_rate = static_cast<float>(recipe.optimizer.learning_rate);
    const double loss = session.run_step(inputs).loss;
    const double wanted = expected["losses"][step];
    worst = std::max(worst, std::fabs(loss - wanted) / wanted);
    ASSERT_NEAR(loss, wanted, kLossBound * wanted) << "step " << step;
    ASSERT_NEAR(evaluated, loss, kEvaluationBound * std::max(1.0, loss)) << "step " << step;
  }
  std::printf("  %-20s losses within %.1e\n", expected["name"].get<std::string>().c_str(), worst);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
}

TEST(LossesGolden, TrainingFollowsPyTorch) {
  const auto backend = testing::make_tested_backend(2);
  for (const Json& expected : golden()["cases"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    run_case(expected, *backend);
  }
}

TEST(LossesGolden, ReferenceFollowsPyTorch) {
  const auto backend = make_reference_backend();
  for (const Json& expected : golden()["cases"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    run_case(expected, *backend);
  }
}

}  // namespace
}  // namespace trainyard
