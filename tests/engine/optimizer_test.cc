// Tests of optimizers against PyTorch's documented algorithms, which are implemented again here
// independently of kernels/math; schedules against rates computed by hand; refusals by field.
#include "src/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;

constexpr int kSteps = 12;

/// Trains p towards the target with MeanSquaredError for kSteps and returns p after each step. The
/// gradient of element i is 2/M (p_i - t_i), which is easy to repeat.
struct Trajectory {
  std::vector<double> start, target;
  std::vector<std::vector<double>> values;
};

Trajectory run(const OptimizerSpec& spec, DType dtype) {
  CaseBuilder b(dtype);
  const TensorId p = b.parameter("p", {5});
  CaseGraph c = b.finish(p);
  const auto gradients = differentiate(c.graph, c.loss);
  const UpdateInputs inputs = append_optimizer(c.graph, spec, gradients, kNoTensor);
  const TensorId target = c.graph.find_tensor("target").value();
  const auto backend = make_reference_backend();
  PreparedProgram prepared(compile(std::move(c.graph), {}), *backend);
  Arena arena(*backend, prepared.program().persistent_bytes, prepared.program().transient_bytes,
              prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);  // zeros the arena, and so the moments
  Trajectory t{c.values.at(p), c.values.at(target), {}};
  testing::write_values(executor, p, t.start);
  testing::write_values(executor, target, t.target);
  testing::write_values(executor, inputs.learning_rate, {spec.learning_rate});
  for (int step = 0; step < kSteps; ++step) {
    if (inputs.step != kNoTensor) {
      testing::write_values(executor, inputs.step, {static_cast<double>(step)});
    }
    executor.run();
    t.values.push_back(testing::read_values(executor, p));
  }
  return t;
}

/// Expects each element's values to follow `update(step, p, g)`.
template <typename F>
void expect_path(const Trajectory& t, double tolerance, F make_update) {
  for (size_t i = 0; i < t.start.size(); ++i) {
    auto update = make_update();
    double p = t.start[i];
    for (int step = 0; step < kSteps; ++step) {
      const double g = 2.0 / static_cast<double>(t.start.size()) * (p - t.target[i]);
      p = update(step, p, g);
      ASSERT_NEAR(t.values[static_cast<size_t>(step)][i], p, tolerance)
          << "element " << i << " step " << step;
    }
  }
}

TEST(Sgd, FollowsPyTorchsAlgorithm) {
  struct Case {
    double momentum, weight_decay;
    bool nesterov;
  };
  for (const Case& c : {Case{0, 0, false}, Case{0, 0.1, false}, Case{0.9, 0, false},
                        Case{0.9, 0.1, false}, Case{0.9, 0.1, true}}) {
    SCOPED_TRACE(c.momentum);
    OptimizerSpec spec{.type = "sgd", .learning_rate = 0.25};
    spec.momentum = c.momentum;
    spec.weight_decay = c.weight_decay;
    spec.nesterov = c.nesterov;
    expect_path(run(spec, DType::kF64), 1e-14, [&] {
      return [&, buffer = 0.0](int step, double p, double g) mutable {
        g = g + c.weight_decay * p;
        if (c.momentum != 0) {
          buffer = step == 0 ? g : c.momentum * buffer + g;
          g = c.nesterov ? g + c.momentum * buffer : buffer;
        }
        return p - spec.learning_rate * g;
      };
    });
  }
}

TEST(Adam, FollowsPyTorchsAlgorithm) {
  for (const std::string type : {"adam", "adamw"}) {
    for (const double weight_decay : {0.0, 0.1}) {
      SCOPED_TRACE(type);
      OptimizerSpec spec{.type = type, .learning_rate = 0.25};
      spec.beta1 = 0.8;
      spec.beta2 = 0.95;
      spec.epsilon = 1e-3;
      spec.weight_decay = weight_decay;
      expect_path(run(spec, DType::kF64), 1e-13, [&] {
        return [&, m = 0.0, v = 0.0](int step, double p, double g) mutable {
          const double t = step + 1;
          if (type == "adamw") p = p - spec.learning_rate * weight_decay * p;
          if (type == "adam") g = g + weight_decay * p;
          m = spec.beta1 * m + (1 - spec.beta1) * g;
          v = spec.beta2 * v + (1 - spec.beta2) * g * g;
          const double m_hat = m / (1 - std::pow(spec.beta1, t));
          const double v_hat = v / (1 - std::pow(spec.beta2, t));
          return p - spec.learning_rate * m_hat / (std::sqrt(v_hat) + spec.epsilon);
        };
      });
    }
  }
}

TEST(Optimizer, StoresItsStateNextToTheWeightsByName) {
  const auto states = [](const OptimizerSpec& spec) {
    CaseBuilder b(DType::kF32);
    CaseGraph c = b.finish(b.parameter("fc1.weight", {2, 3}));
    append_optimizer(c.graph, spec, differentiate(c.graph, c.loss), kNoTensor);
    c.graph.verify();
    std::vector<std::string> names;
    for (const TensorInfo& t : c.graph.tensors()) {
      if (t.role == Role::kOptimizerState) names.push_back(t.name);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(states({.type = "sgd"}), Names{});
  EXPECT_EQ(states({.type = "sgd", .momentum = 0.9}), Names{"fc1.weight.momentum"});
  EXPECT_EQ(states({.type = "adamw"}), (Names{"fc1.weight.exp_avg", "fc1.weight.exp_avg_sq"}));
}

TEST(Optimizer, UsesTheStepOfDropout) {
  CaseBuilder b(DType::kF32);
  const TensorId step = b.step(0);
  const TensorId y = b.one("y", "Dropout", {{"ratio", 0.5}}, {b.parameter("p", {4}), step});
  CaseGraph c = b.finish(y);
  const auto gradients = differentiate(c.graph, c.loss);
  EXPECT_EQ(append_optimizer(c.graph, {.type = "adam"}, gradients, step).step, step);
}

TEST(Schedule, ConstantAfterALinearWarmup) {
  const ScheduleSpec s{.type = "constant", .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 0, 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 3, 100), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 4, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 99, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at({}, 0.3, 0, 1), 0.3);
}

TEST(Schedule, StepMultipliesByGammaEveryStepSize) {
  const ScheduleSpec s{.type = "step", .warmup_steps = 2, .step_size = 10, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 2, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 11, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 12, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 32, 100), 0.125);
}

TEST(Schedule, CosineEndsAtTheMinimumOnTheLastStep) {
  const ScheduleSpec s{.type = "cosine", .warmup_steps = 10, .min_learning_rate = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 10, 111), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1.0, 60, 111), 0.55);
  EXPECT_NEAR(learning_rate_at(s, 1.0, 110, 111), 0.1, 1e-15);
  double previous = 2;
  for (int64_t step = 10; step < 111; ++step) {
    EXPECT_LT(learning_rate_at(s, 1.0, step, 111), previous);
    previous = learning_rate_at(s, 1.0, step, 111);
  }
  // Jobs of one step, or shorter than their warm-up, must get a finite rate.
  EXPECT_TRUE(std::isfinite(learning_rate_at(s, 1.0, 0, 1)));
  EXPECT_TRUE(std::isfinite(learning_rate_at(s, 1.0, 10, 11)));
}

struct BadSpec {
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  std::string message;
};

TEST(CheckOptimizer, RefusesByFieldWithTheValueAndTheRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::string rate = "recipe.optimizer.learning_rate: ";
  const std::string expected = " is out of range, expected more than 0 and at most 1e6";
  const std::vector<BadSpec> bad = {
      {{.learning_rate = 0}, {}, rate + "0" + expected},
      {{.learning_rate = -0.5}, {}, rate + "-0.5" + expected},
      {{.learning_rate = nan}, {}, rate + "nan" + expected},
      {{.learning_rate = inf}, {}, rate + "inf" + expected},
      {{.type = "adm"},
       {},
       "recipe.optimizer.type: 'adm' is not known, expected one of sgd, adam, adamw, rmsprop, "
       "lion, "
       "adafactor, muon; did you mean 'adam'?"},
      {{.momentum = 1},
       {},
       "recipe.optimizer.momentum: 1 is out of range, expected 0 or more and less than 1"},
      {{.nesterov = true},
       {},
       "recipe.optimizer.nesterov: needs recipe.optimizer.momentum above 0"},
      {{.type = "adam", .beta2 = nan},
       {},
       "recipe.optimizer.beta2: nan is out of range, expected 0 or more and less than 1"},
      {{.type = "adam", .epsilon = 0},
       {},
       "recipe.optimizer.epsilon: 0 is out of range, expected more than 0 and at most 1"},
      {{.weight_decay = -1},
       {},
       "recipe.optimizer.weight_decay: -1 is out of range, expected 0 or more and at most 1e6"},
      {{},
       {.warmup_steps = -1},
       "recipe.schedule.warmup_steps: -1 is out of range, expected 0..2^40"},
      {{}, {.type = "step"}, "recipe.schedule.step_size: 0 is out of range, expected 1..2^40"},
      {{},
       {.type = "step", .step_size = 1, .gamma = 0},
       "recipe.schedule.gamma: 0 is out of range, expected more than 0 and at most 1"},
      {{.learning_rate = 0.1},
       {.type = "cosine", .min_learning_rate = 0.2},
       "recipe.schedule.min_learning_rate: 0.2 is out of range, expected 0 or more and at most "
       "recipe.optimizer.learning_rate"},
  };
  for (const BadSpec& b : bad) {
    const Status s = check_optimizer(b.optimizer, b.schedule);
    ASSERT_FALSE(s.ok()) << b.message;
    EXPECT_EQ(s.error().message, b.message);
    EXPECT_EQ(s.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(check_optimizer({}, {}).ok());
  EXPECT_TRUE(check_optimizer({.type = "adamw"}, {.type = "cosine", .warmup_steps = 5}).ok());
}

}  // namespace
}  // namespace trainyard
