// Compares model.loss: sampled_softmax with PyTorch with the same candidates
// (tests/golden/make_sampled_golden.py draws them again): losses of 20 steps within 1e-5, and rows
// of the head after these steps, trained by plain gradient descent and by Adam. Adam's update of a
// head's rows is that of torch.optim.SparseAdam.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/sampled_xent.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/planning/programs.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kSampledBound = 1e-5;

const Json& sampled_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/sampled_softmax.json"));
    return Json::parse(file);
  }();
  return json;
}
int64_t sampled_size_of(const char* name) { return sampled_golden()[name].get<int64_t>(); }

double sampled_uniform(const char* name, int64_t step, int64_t i) {
  return math::uniform01<double>(math::philox_u32(sampled_golden()["seed"], stream_of(name),
                                                  static_cast<uint64_t>(step),
                                                  static_cast<uint64_t>(i)));
}

struct Rows {
  std::vector<float> x;
  std::vector<int32_t> labels;
};
Rows rows_of(int64_t step) {
  Rows rows;
  const int64_t width = sampled_size_of("features");
  for (int64_t n = 0; n < sampled_size_of("batch"); ++n) {
    const double u = sampled_uniform("sampled/label", step, n);
    rows.labels.push_back(
        static_cast<int32_t>(static_cast<double>(sampled_size_of("classes")) * u * u * u));
    for (int64_t f = 0; f < width; ++f) {
      const double lean = rows.labels.back() % width == f ? 0.75 : 0;
      rows.x.push_back(
          static_cast<float>(2 * sampled_uniform("sampled/x", step, n * width + f) - 1 + lean));
    }
  }
  return rows;
}

void expect_drawn(const Json& expected) {
  kernels::SampleClassesParams p;
  p.samples = sampled_size_of("samples");
  p.seed = sampled_golden()["seed"];
  p.stream = stream_of("head/sample");
  p.candidates =
      math::candidates_of(sampled_size_of("classes"), expected["distribution"] == "log_uniform");
  for (int64_t step = 0; step < std::ssize(expected["drawn"]); ++step) {
    std::vector<int32_t> classes(static_cast<size_t>(p.columns()));
    std::vector<float> log_expected(classes.size());
    const int32_t label = 0;
    int32_t position = 0;
    kernels::reference::sample_classes<float>(
        p, {&label, &label, &step, classes.data(), &position, log_expected.data()});
    classes.resize(static_cast<size_t>(p.samples));
    EXPECT_EQ(classes, expected["drawn"][static_cast<size_t>(step)].get<std::vector<int32_t>>());
  }
}

void run_sampled_case(const Json& expected, Backend& backend) {
  ModelSpec model;
  model.layers = {{"fc1", "Gemm", {}, {{"units", sampled_size_of("hidden")}}},
                  {"", "Tanh", {}, {}},
                  {"head", "Gemm", {}, {}}};
  model.loss = {"SampledSoftmaxCrossEntropyLoss",
                {{"samples", sampled_size_of("samples")},
                 {"distribution", expected["distribution"].get<std::string>()}}};
  if (expected["ignored"] >= 0) {
    model.loss.attributes.set("ignore_index", expected["ignored"].get<int64_t>());
  }
  const ModelInterface data{
      {sampled_size_of("features")}, 0, TargetForm::kClass, sampled_size_of("classes")};
  Recipe recipe;
  recipe.seed = sampled_golden()["seed"];
  recipe.batch_size = sampled_size_of("batch");
  recipe.optimizer = default_optimizer(expected["optimizer"].get<std::string>());
  recipe.optimizer.learning_rate = expected["learning_rate"];
  recipe.optimizer.epsilon = sampled_golden()["epsilon"];
  Session session(compile_step(model, recipe, data, {}, backend.traits()).value(), backend);
  session.initialize(sampled_golden()["seed"]);
  double worst = 0;
  for (size_t step = 0; step < expected["losses"].size(); ++step) {
    const Rows rows = rows_of(static_cast<int64_t>(step));
    const double loss =
        session
            .run_step({std::as_bytes(std::span(rows.x)), std::as_bytes(std::span(rows.labels)),
                       static_cast<int64_t>(step),
                       static_cast<float>(recipe.optimizer.learning_rate)})
            .loss;
    const double wanted = expected["losses"][step];
    worst = std::max(worst, std::fabs(loss - wanted));
    ASSERT_NEAR(loss, wanted, kSampledBound) << "step " << step;
  }
  const Snapshot snapshot = session.snapshot();
  for (const char* name : {"weight", "bias"}) {
    const auto tensor =
        std::ranges::find(snapshot.weights, "head." + std::string(name), &TensorView::name);
    ASSERT_NE(tensor, snapshot.weights.end());
    std::vector<float> values(tensor->bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    const auto width = static_cast<int64_t>(std::ssize(values)) / sampled_size_of("classes");
    const Json rows = expected[name];
    for (int64_t r = 0; r < std::ssize(rows); ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const Json& row = rows[static_cast<size_t>(r)];
        const double wanted =
            row.is_array() ? row[static_cast<size_t>(c)].get<double>() : row.get<double>();
        const auto at = static_cast<size_t>(r * sampled_size_of("row_step") * width + c);
        EXPECT_NEAR(static_cast<double>(values[at]), wanted, kSampledBound) << name << " " << r;
      }
    }
  }
  std::printf("  %-8s losses within %.1e\n", expected["name"].get<std::string>().c_str(), worst);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
}

TEST(SampledGolden, TrainingFollowsPyTorch) {
  const auto backend = testing::make_tested_backend(2);
  for (const Json& expected : sampled_golden()["cases"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    expect_drawn(expected);
    run_sampled_case(expected, *backend);
  }
}

TEST(SampledGolden, ReferenceFollowsPyTorch) {
  const auto backend = make_reference_backend();
  for (const Json& expected : sampled_golden()["cases"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    run_sampled_case(expected, *backend);
  }
}

}  // namespace
}  // namespace trainyard
