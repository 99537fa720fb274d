// Compares optimizers, clipping, accumulation, parameter groups, low-rank additions, the moving
// average, schedules and metrics with PyTorch (tests/golden/make_recipes_golden.py describes how).
//
// Bounds: the loss of each of 50 steps within 1e-4 relative. Final weights within 2e-4 of their
// root mean square: the steps of sign-like optimizers do not shrink with the gradient, so that an
// element whose gradient is only rounding error moves by a full step in a random direction.
// Schedules and metrics are computed in double on both sides: 1e-8.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/math/philox.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/runtime/backend.h"
#include "src/train/metric_accumulator.h"
#include "src/train/session.h"
#include "tests/engine/tested_backend.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kRecipeLossBound = 1e-4;
constexpr double kWeightBound = 2e-4;
constexpr double kDoubleBound = 1e-8;

const Json& recipes_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/recipes.json"));
    return Json::parse(file);
  }();
  return json;
}

struct RecipeBatch {
  std::vector<float> input;
  std::vector<int32_t> target;
};

// Returns what batch() in tests/golden/make_recipes_golden.py returns.
RecipeBatch recipe_batch(int64_t step) {
  const uint64_t seed = recipes_golden()["seed"];
  const int64_t rows = recipes_golden()["batch"], features = recipes_golden()["features"];
  const auto at = static_cast<uint64_t>(step);
  RecipeBatch batch;
  for (int64_t n = 0; n < rows; ++n) {
    const uint32_t draw =
        math::philox_u32(seed, stream_of("recipes/label"), at, static_cast<uint64_t>(n));
    const int64_t label = draw % recipes_golden()["classes"].get<uint32_t>();
    batch.target.push_back(static_cast<int32_t>(label));
    for (int64_t f = 0; f < features; ++f) {
      const double u = math::uniform01<double>(math::philox_u32(
          seed, stream_of("recipes/x"), at, static_cast<uint64_t>(n * features + f)));
      const auto x = static_cast<float>(2 * u - 1);
      batch.input.push_back(f / 3 == label ? x + 0.75f : x);
    }
  }
  return batch;
}

OptimizerSpec optimizer_of(const Json& json) {
  OptimizerSpec o = default_optimizer(json["type"].get<std::string>());
  o.learning_rate = json["learning_rate"];
  o.momentum = json.value("momentum", o.momentum);
  o.nesterov = json.value("nesterov", o.nesterov);
  o.weight_decay = json.value("weight_decay", 0.0);
  o.weight_decay_on = json.value("weight_decay_on", o.weight_decay_on);
  o.alpha = json.value("alpha", o.alpha);
  o.centered = json.value("centered", o.centered);
  o.adjust_rate = json.value("adjust_rate", o.adjust_rate);
  o.fallback_learning_rate = json.value("fallback_learning_rate", 0.0);
  return o;
}

Recipe recipe_of(const Json& json) {
  Recipe recipe;
  recipe.batch_size = recipes_golden()["batch"];
  recipe.optimizer = optimizer_of(json["optimizer"]);
  const Json& options = json["recipe"];
  recipe.accumulate_steps = options.value("accumulate_steps", int64_t{1});
  recipe.clip_norm = options.value("clip_norm", 0.0);
  recipe.clip_value = options.value("clip_value", 0.0);
  recipe.ema_decay = options.value("ema_decay", 0.0);
  for (const Json& g : options.value("parameter_groups", Json::array())) {
    ParameterGroup group{.match = g["match"]};
    if (g.contains("freeze")) group.freeze = g["freeze"].get<bool>();
    if (g.contains("learning_rate_factor")) {
      group.learning_rate_factor = g["learning_rate_factor"].get<double>();
    }
    recipe.parameter_groups.push_back(group);
  }
  if (options.contains("lora")) {
    const Json& lora = options["lora"];
    recipe.lora = {lora["rank"], lora["alpha"], 0, lora["targets"]};
  }
  return recipe;
}

void expect_weights(const Snapshot& snapshot, const Json& weights) {
  ASSERT_EQ(snapshot.weights.size(), weights.size());
  for (const TensorView& t : snapshot.weights) {
    const Json& expected = weights[t.name];
    const auto* values = reinterpret_cast<const float*>(t.bytes.data());
    const double norm = expected["norm"];
    const double rms = norm / std::sqrt(static_cast<double>(t.type.shape.elements()));
    for (size_t k = 0; k < expected["index"].size(); ++k) {
      const size_t i = expected["index"][k];
      EXPECT_NEAR(values[i], expected["value"][k].get<double>(), kWeightBound * rms)
          << t.name << "[" << i << "]";
    }
  }
}

void run_recipe_case(const Json& expected, Backend& backend) {
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", recipes_golden()["hidden"].get<std::vector<int64_t>>());
  const ModelInterface interface {
    {recipes_golden()["features"].get<int64_t>()}, 0, TargetForm::kClass,
        recipes_golden()["classes"]
  };
  const Recipe recipe = recipe_of(expected);
  Session session(compile_step(model, recipe, interface, {}, backend.traits()).value(), backend,
                  recipe.accumulate_steps);
  session.initialize(recipes_golden()["seed"]);
  double worst = 0;
  for (size_t step = 0; step < expected["losses"].size(); ++step) {
    const RecipeBatch batch = recipe_batch(static_cast<int64_t>(step));
    Session::StepInputs inputs;
    inputs.input = std::as_bytes(std::span(batch.input));
    inputs.target = std::as_bytes(std::span(batch.target));
    inputs.step = static_cast<int64_t>(step);
    inputs.learning_rate = static_cast<float>(recipe.optimizer.learning_rate);
    const Session::StepResult result = session.run_step(inputs);
    const double loss = result.loss;
    const double wanted = expected["losses"][step];
    worst = std::max(worst, std::fabs(loss - wanted) / wanted);
    ASSERT_NEAR(loss, wanted, kRecipeLossBound * wanted) << "step " << step;
    ASSERT_EQ(result.gradient_norm.has_value(), expected.contains("norms"));
    if (result.gradient_norm.has_value()) {
      const double norm = expected["norms"][step];
      ASSERT_NEAR(*result.gradient_norm, norm, kRecipeLossBound * norm) << "step " << step;
    }
  }
  std::printf("  %-18s losses within %.1e\n", expected["name"].get<std::string>().c_str(), worst);
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
  expect_weights(session.evaluated_weights(), expected["weights"]);
}

TEST(RecipesGolden, TrainingFollowsPyTorch) {
  const auto backend = testing::make_tested_backend(2);
  for (const Json& expected : recipes_golden()["training"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    run_recipe_case(expected, *backend);
  }
}

TEST(RecipesGolden, ReferenceFollowsPyTorch) {
  const auto backend = make_reference_backend();
  for (const Json& expected : recipes_golden()["training"]) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    run_recipe_case(expected, *backend);
  }
}

TEST(RecipesGolden, SchedulesGivePyTorchsRates) {
  const Json& schedules = recipes_golden()["schedules"];
  const double base = schedules["base"];
  const int64_t steps = schedules["steps"];
  for (const Json& c : schedules["cases"]) {
    const Json& json = c["schedule"];
    SCOPED_TRACE(json.dump());
    ScheduleSpec s;
    s.type = json["type"];
    s.warmup_steps = json["warmup_steps"];
    s.step_size = json.value("step_size", s.step_size);
    s.gamma = json.value("gamma", s.gamma);
    s.milestones = json.value("milestones", s.milestones);
    s.min_learning_rate = json.value("min_learning_rate", s.min_learning_rate);
    s.power = json.value("power", s.power);
    s.pct_start = json.value("pct_start", s.pct_start);
    s.div_factor = json.value("div_factor", s.div_factor);
    s.final_div_factor = json.value("final_div_factor", s.final_div_factor);
    for (int64_t step = 0; step < steps; ++step) {
      EXPECT_NEAR(learning_rate_at(s, base, step, steps),
                  c["rates"][static_cast<size_t>(step)].get<double>(), kDoubleBound)
          << "step " << step;
    }
  }
}

std::vector<std::string> names_of(const Json& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values.items()) names.push_back(name);
  return names;
}

void expect_values(const MetricAccumulator& metrics, const Json& values) {
  for (const auto& [name, value] : values.items()) {
    EXPECT_NEAR(metrics.value(name), value.get<double>(), kDoubleBound) << name;
  }
}

// Returns the objective with the target's default loss.
Objective objective_of(const ModelInterface& interface) {
  return find_objective({}, interface).value();
}

TEST(RecipesGolden, MetricsOfClasses) {
  for (const Json& c : recipes_golden()["metrics"]["classes"]) {
    const auto classes = static_cast<int64_t>(c["confusion"].size());
    SCOPED_TRACE(classes);
    std::vector<std::string> names = names_of(c["values"]);
    names.push_back("confusion_matrix");
    MetricAccumulator metrics(names, objective_of({{1}, 0, TargetForm::kClass, classes}));
    for (size_t i = 0; i < c["labels"].size(); ++i) {
      metrics.add_scores(c["logits"][i].get<std::vector<float>>(), c["labels"][i]);
    }
    expect_values(metrics, c["values"]);
    EXPECT_EQ(metrics.confusion(), c["confusion"].get<std::vector<std::vector<int64_t>>>());
  }
}

TEST(RecipesGolden, MetricsOfNumbersAndTokens) {
  const Json& numbers = recipes_golden()["metrics"]["numbers"];
  MetricAccumulator m(names_of(numbers["values"]), objective_of({{1}, 0, TargetForm::kNumeric, 1}));
  for (size_t i = 0; i < numbers["target"].size(); ++i) {
    const double predicted = numbers["predicted"][i], target = numbers["target"][i];
    m.add_number(predicted, target, predicted, target);
  }
  expect_values(m, numbers["values"]);

  const Json& tokens = recipes_golden()["metrics"]["tokens"];
  const auto vocabulary = static_cast<int64_t>(tokens["logits"][0].size());
  MetricAccumulator t(names_of(tokens["values"]),
                      objective_of({{8}, vocabulary, TargetForm::kNextToken, vocabulary}));
  for (size_t i = 0; i < tokens["labels"].size(); ++i) {
    t.add_scores(tokens["logits"][i].get<std::vector<float>>(), tokens["labels"][i],
                 tokens["bytes"][i]);
  }
  expect_values(t, tokens["values"]);
}

}  // namespace
}  // namespace trainyard
