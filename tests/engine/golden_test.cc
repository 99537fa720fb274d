// Compares training runs with PyTorch. Initial weights and batches are Philox numbers that
// tests/golden/make_pytorch_golden.py draws too, so the losses of 100 steps and the final weights
// must agree. This catches any error in a formula, an initial value or the order of an optimizer's
// operations.
//
// Bounds: The loss of every step within 1e-4 relative (measured: 6e-7 for the MLP, 8e-6 for LeNet).
// Final weights: the norm of each parameter, relative, and each sampled value, relative to the
// parameter's root mean square, within 1e-4 for the MLP and 2e-3 for LeNet (measured: 6e-4).
// LeNet's bound is wider because one rounding can flip the winner of a pooling window, which moves
// a gradient by 1e-3; PyTorch with oneDNN differs from PyTorch without it by as much.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/job/recipe.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/engine/golden_batch.h"
#include "tests/engine/half_golden.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kLossBound = 1e-4;
constexpr double kWeightBoundMlp = 1e-4;
constexpr double kWeightBoundLeNet = 2e-3;
constexpr int64_t kPixels = 28 * 28;
constexpr int64_t kClasses = 10;

const Json& golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/pytorch_training.json"));
    return Json::parse(file);
  }();
  return json;
}

struct GoldenModel {
  ModelSpec spec;
  ModelInterface interface;
};

GoldenModel model_of(const std::string& name) {
  GoldenModel m;
  if (name.starts_with("mlp")) {
    m.spec.preset = "mlp";
    m.spec.parameters.set("hidden", std::vector<int64_t>{512, 512});
    m.interface = {{kPixels}, 0, TargetForm::kClass, kClasses};
  } else {
    m.spec.preset = "lenet5";
    m.interface = {{1, 28, 28}, 0, TargetForm::kClass, kClasses};
  }
  return m;
}

OptimizerSpec optimizer_of(const Json& json) {
  OptimizerSpec o;
  o.type = json["type"];
  o.learning_rate = json["learning_rate"];
  o.momentum = json.value("momentum", 0.0);
  return o;
}

void expect_weights(const Snapshot& snapshot, const Json& parameters, double bound) {
  double worst = 0;
  ASSERT_EQ(snapshot.weights.size(), parameters.size());
  for (const TensorView& t : snapshot.weights) {
    ASSERT_TRUE(parameters.contains(t.name)) << t.name;
    const Json& expected = parameters[t.name];
    const auto* values = reinterpret_cast<const float*>(t.bytes.data());
    const auto count = static_cast<size_t>(t.type.shape.elements());
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
    const double norm = expected["norm"];
    EXPECT_NEAR(std::sqrt(sum), norm, bound * norm) << t.name;
    const double rms = norm / std::sqrt(static_cast<double>(count));
    for (size_t k = 0; k < expected["index"].size(); ++k) {
      const size_t i = expected["index"][k];
      const double value = expected["value"][k];
      EXPECT_NEAR(values[i], value, bound * rms) << t.name << "[" << i << "]";
      worst = std::max(worst, std::fabs(values[i] - value) / rms);
    }
  }
  std::printf("  weights within %.1e of their root mean square\n", worst);
}

void run_case(const std::string& name, int threads, Precision precision = Precision::kFp32) {
  const auto& cases = golden()["cases"];
  const auto it =
      std::find_if(cases.begin(), cases.end(), [&](const Json& c) { return c["name"] == name; });
  ASSERT_NE(it, cases.end()) << name;
  const Json& expected = *it;
  const uint64_t seed = golden()["seed"];
  const int64_t batch_size = expected["batch_size"];

  Recipe recipe;
  recipe.optimizer = optimizer_of(expected["optimizer"]);
  recipe.batch_size = batch_size;
  recipe.precision = precision;
  const GoldenModel model = model_of(name);
  RunPrograms programs;
  const auto backend = testing::make_tested_backend(threads);
  programs.train =
      compile_training(model.spec, recipe, model.interface, batch_size, backend->traits()).value();
  Session session(std::move(programs), *backend);
  session.initialize(seed);

  const testing::GoldenLosses golden_losses =
      testing::golden_losses(name, precision, expected["losses"], kLossBound);
  double worst = 0;
  const auto steps = static_cast<int64_t>(golden_losses.losses.size());
  ASSERT_EQ(steps, 100);
  for (int64_t step = 0; step < steps; ++step) {
    const testing::GoldenBatch batch =
        testing::golden_batch(seed, static_cast<uint64_t>(step), batch_size, kPixels, kClasses);
    Session::StepInputs inputs;
    inputs.input = std::as_bytes(std::span(batch.input));
    inputs.target = std::as_bytes(std::span(batch.target));
    inputs.step = step;
    inputs.learning_rate = static_cast<float>(recipe.optimizer.learning_rate);
    const double loss = session.run_step(inputs).loss;
    const double golden_loss = golden_losses.losses[static_cast<size_t>(step)];
    ASSERT_NEAR(loss, golden_loss, golden_losses.bound * golden_loss) << "step " << step + 1;
    worst = std::max(worst, std::fabs(loss - golden_loss) / golden_loss);
  }
  std::printf("%s on %s: losses within %.1e of PyTorch\n", name.c_str(),
              std::string(backend->name()).c_str(), worst);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
  if (precision != Precision::kFp32) return;
  expect_weights(session.snapshot(), expected["parameters"],
                 name.starts_with("mlp") ? kWeightBoundMlp : kWeightBoundLeNet);
}

TEST(PyTorchGolden, MlpWithSgdMomentum) { run_case("mlp_sgd", 1); }
TEST(PyTorchGolden, MlpWithAdam) { run_case("mlp_adam", 1); }
TEST(PyTorchGolden, LeNetWithSgdMomentum) { run_case("lenet5_sgd", 1); }
TEST(PyTorchGolden, LeNetOnTwoThreads) { run_case("lenet5_sgd", 2); }
TEST(PyTorchGolden, MlpInBf16) { run_case("mlp_adam", 2, Precision::kBf16); }
TEST(PyTorchGolden, MlpInFp16) { run_case("mlp_adam", 2, Precision::kFp16); }
TEST(PyTorchGolden, LeNetInFp16) { run_case("lenet5_sgd", 2, Precision::kFp16); }
TEST(PyTorchGolden, LeNetInBf16) { run_case("lenet5_sgd", 2, Precision::kBf16); }

}  // namespace
}  // namespace trainyard
