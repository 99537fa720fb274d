// Tests of precision fp16. A step whose gradients overflow changes nothing but the scale, whatever
// the optimizer; the first step that does not overflow equals that of fp32; a job resumed from its
// checkpoint gives the same bits. The tests fail if a kernel changes a weight, a momentum or a step
// count in a skipped step, or if gradients are not divided by the scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/math/philox.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/planning/programs.h"
#include "src/train/session.h"
#include "tests/engine/run_job.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::make_dataset;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

constexpr int64_t kBatch = 16;
constexpr int64_t kSteepFeatures = 8;

LayerSpec layer(const std::string& op, Attributes attributes = {},
                std::vector<std::string> inputs = {}, const std::string& name = {}) {
  return {name, op, std::move(inputs), std::move(attributes)};
}

/// LeakyRelu with alpha 100 multiplies negative values by 100, forward and backward.
ModelSpec steep_model() {
  ModelSpec spec;
  spec.layers = {layer("Gemm", {{"units", int64_t{16}}}), layer("LeakyRelu", {{"alpha", 100.0}}),
                 layer("Gemm", {{"units", int64_t{16}}}), layer("Gelu"), layer("Gemm")};
  return spec;
}

std::vector<float> draw_values(int64_t count, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 2 * math::uniform01<float>(math::philox_u32(5, stream, 0, i)) - 1;
  }
  return values;
}

/// A session that trains on the same batch in each step.
class Steps {
 public:
  Steps(const Recipe& recipe, Backend& backend)
      : rate_(static_cast<float>(recipe.optimizer.learning_rate)),
        x_(draw_values(kBatch * kSteepFeatures, 0)),
        y_(draw_values(kBatch, 1)) {
    const ModelInterface interface { {kSteepFeatures}, 0, TargetForm::kNumeric, 1 };
    auto programs = compile_step(steep_model(), recipe, interface).value();
    session_.emplace(std::move(programs), backend, recipe.accumulate_steps);
    session_->initialize(1);
  }
  Session::StepResult step() {
    return session_->run_step(
        {std::as_bytes(std::span(x_)), std::as_bytes(std::span(y_)), steps_++, rate_});
  }
  /// Returns all tensors of a checkpoint except those of the loss scale, by name.
  std::map<std::string, std::vector<std::byte>> kept() const {
    std::map<std::string, std::vector<std::byte>> bytes;
    const Snapshot snapshot = session_->snapshot();
    for (const auto* views : {&snapshot.weights, &snapshot.optimizer}) {
      for (const TensorView& t : *views) {
        if (!t.name.starts_with("loss_scale.")) bytes[t.name] = {t.bytes.begin(), t.bytes.end()};
      }
    }
    return bytes;
  }

 private:
  float rate_;
  std::vector<float> x_, y_;
  std::optional<Session> session_;
  int64_t steps_ = 0;
};

std::vector<double> moves(const std::map<std::string, std::vector<std::byte>>& from,
                          const std::map<std::string, std::vector<std::byte>>& to) {
  std::vector<double> all;
  for (const auto& [name, bytes] : from) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, bytes.data() + i, sizeof a);
      std::memcpy(&b, to.at(name).data() + i, sizeof b);
      all.push_back(static_cast<double>(b) - static_cast<double>(a));
    }
  }
  return all;
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

struct Case {
  std::string optimizer;
  int64_t accumulate_steps;
  double clip_norm, clip_value;
};

TEST(LossScaling, ASkippedStepChangesNothingAndTheFirstOtherMatchesFp32) {
  const auto backend = testing::make_tested_backend(2);
  for (const Case& c : std::vector<Case>{{"sgd", 1, 0, 0},
                                         {"sgd", 1, 0.5, 0},
                                         {"sgd", 2, 0, 0.01},
                                         {"adam", 1, 0, 0},
                                         {"adamw", 2, 0.5, 0},
                                         {"rmsprop", 1, 0, 0},
                                         {"lion", 1, 0, 0},
                                         {"adafactor", 1, 0, 0},
                                         {"muon", 1, 0, 0}}) {
    SCOPED_TRACE(c.optimizer + " " + std::to_string(c.accumulate_steps));
    Recipe recipe;
    recipe.steps = 40;
    recipe.batch_size = kBatch;
    recipe.optimizer = default_optimizer(c.optimizer);
    recipe.optimizer.learning_rate = 1e-3;
    const bool has_momentum =
        c.optimizer == "sgd" || c.optimizer == "rmsprop" || c.optimizer == "muon";
    if (has_momentum) recipe.optimizer.momentum = 0.9;
    recipe.optimizer.weight_decay = 0.01;
    recipe.accumulate_steps = c.accumulate_steps;
    recipe.clip_norm = c.clip_norm;
    recipe.clip_value = c.clip_value;
    Steps wide(recipe, *backend);
    const auto first = wide.kept();
    const auto wide_step = wide.step();
    EXPECT_FALSE(wide_step.loss_scale.has_value());
    const std::vector<double> expected = moves(first, wide.kept());

    recipe.precision = Precision::kFp16;
    Steps narrow(recipe, *backend);
    float scale = 65536;
    int skipped = 0;
    Session::StepResult step = narrow.step();
    for (; step.skipped && skipped < 30; step = narrow.step(), ++skipped) {
      EXPECT_EQ(step.loss_scale, scale);
      EXPECT_TRUE(std::isfinite(step.loss));
      EXPECT_EQ(narrow.kept(), first);
      scale /= 2;
    }
    EXPECT_GT(skipped, 0) << "nothing overflows";
    EXPECT_LT(skipped, 30) << "everything does";
    EXPECT_EQ(step.loss_scale, scale);
    if (wide_step.gradient_norm) {
      EXPECT_NEAR(*step.gradient_norm, *wide_step.gradient_norm, 0.01F * *wide_step.gradient_norm);
    }
    std::vector<double> distance = moves(first, narrow.kept());
    ASSERT_EQ(distance.size(), expected.size());
    for (size_t i = 0; i < distance.size(); ++i) distance[i] -= expected[i];
    // Values are rounded to 11 bits; a step of Lion is a sign, which rounding may flip where the
    // gradient is near 0.
    EXPECT_LT(norm(distance), 0.05 * norm(expected));
    EXPECT_GT(norm(expected), 0);
  }
}

TrainJob scaling_job_in(const Workspace& w, const std::string& name, ModelSpec model) {
  TrainJob job;
  job.model = std::move(model);
  job.recipe.steps = 40;
  job.recipe.batch_size = kBatch;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 1e-3;
  job.recipe.ema_decay = 0.9;
  job.recipe.seed = 5;
  job.recipe.precision = Precision::kFp16;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

// The job is stopped while it skips steps, and again later; the checkpoint has the scale and its
// counters.
TEST(LossScaling, AJobSkipsReportsLearnsAndResumesToTheSameBits) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 100);
  const TrainJob whole = scaling_job_in(w, "whole", steep_model());
  Recorder rw;
  const auto result = run_job(whole, rw);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
  const auto& scales = rw.series["train/loss_scale"];
  ASSERT_GT(scales.size(), 2u);
  EXPECT_EQ(scales.begin()->first, 1);
  EXPECT_EQ(scales.begin()->second, 65536);
  EXPECT_EQ(scales.at(2), 32768);
  EXPECT_LT(scales.rbegin()->first, 30) << "steps are taken again";
  EXPECT_LT(rw.series["train/loss"][40], rw.series["train/loss"][1]);
  EXPECT_EQ(rw.plan.precision, Precision::kFp16);

  for (const int64_t at : {2, 17}) {
    SCOPED_TRACE(at);
    TrainJob parts = scaling_job_in(w, "parts" + std::to_string(at), steep_model());
    parts.recipe.checkpoint_every_steps = at;
    std::stop_source stop;
    Recorder first, second;
    first.stop_step = at;
    first.stop = &stop;
    ASSERT_EQ(run_job(parts, first, stop.get_token()).error().reason, "STOPPED");
    ASSERT_TRUE(run_job(parts, second).ok());
    EXPECT_EQ(second.plan.first_step, at);
    EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
              bytes_of(whole.model_output / "model.safetensors"));
    for (const auto& [step, scale] : second.series["train/loss_scale"]) {
      if (step == at + 1) continue;  // reported again by the resumed run
      EXPECT_EQ(scale, scales.at(step)) << step;
    }
  }
}

// The square root has an infinite slope at 0, so no scale helps, although the loss is finite.
TEST(LossScaling, GradientsThatOverflowAtEveryScaleEndTheJob) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 100);
  ModelSpec model;
  model.layers = {layer("Gemm", {{"units", int64_t{4}}}, {}, "fc"), layer("Sub", {}, {"fc", "fc"}),
                  layer("Sqrt"), layer("Gemm")};
  TrainJob job = scaling_job_in(w, "a", std::move(model));
  job.recipe.steps = 100;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, "LOSS_NOT_FINITE");
  EXPECT_NE(result.error().message.find("gradients of step 34"), std::string::npos)
      << result.error().message;
  EXPECT_NE(result.error().message.find("bf16"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace trainyard
