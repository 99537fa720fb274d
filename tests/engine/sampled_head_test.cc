// Tests of model.loss: sampled_softmax in whole jobs: only the rows of drawn classes and labels
// change, no computed tensor is as large as the head, evaluations use all classes, any number of
// devices draws the same classes, and a resumed run continues with the same draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/philox.h"
#include "src/checkpoint/safetensors.h"
#include "src/data/limits.h"
#include "src/inference/evaluate_model.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/ops/sampled_xent.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/train/metric_accumulator.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"
#include "src/train/trainer.h"
#include "tests/engine/fit_support.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using testing::Change;
using testing::cpu_devices;
using testing::Recorder;
using testing::run;
using testing::weights_of;
using testing::Workspace;

/// Classes follow Zipf's law; each row is eight numbers that correlate with its class; every class
/// has at least one row.
void make_zipf_classes(const Workspace& w, int64_t classes, int64_t rows) {
  testing::make_rows(w, rows, 64, [&](std::ostream& out, int64_t row) {
    const double u = math::uniform01<double>(math::philox_u32(5, 1, 0, static_cast<uint64_t>(row)));
    const auto drawn = static_cast<int64_t>(std::pow(static_cast<double>(classes + 1), u)) - 1;
    const int64_t label = row < classes ? row : std::min(drawn, classes - 1);
    for (int64_t i = 0; i < 8; ++i) {
      const double noise =
          math::uniform01<double>(math::philox_u32(5, 2, 0, static_cast<uint64_t>(row * 8 + i)));
      out << 2 * std::sin(static_cast<double>((label + 1) * (i + 1)) * 0.7) + 0.5 * noise << ',';
    }
    out << label << '\n';
  });
}

LossSpec sampled(int64_t samples) {
  return {"SampledSoftmaxCrossEntropyLoss", {{"samples", samples}}};
}

TrainJob sampled_job_on(const Workspace& w, const std::string& name, int64_t samples,
                        const Change& change = nullptr) {
  TrainJob job = testing::plain_job(w, name);
  job.model = {};
  job.model.layers = {
      {"", "Gemm", {}, {{"units", int64_t{24}}}}, {"", "Tanh", {}, {}}, {"head", "Gemm", {}, {}}};
  if (samples > 0) job.model.loss = sampled(samples);
  job.recipe.steps = 30;
  job.recipe.batch_size = 16;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  return job;
}

/// The session uses `backend` if there is one rank.
std::unique_ptr<TrainingSession> session_of(const ModelSpec& model, const Recipe& recipe,
                                            const ModelInterface& interface, int64_t ranks,
                                            Backend& backend) {
  std::vector<RunPrograms> programs;
  for (int64_t r = 0; r < ranks; ++r) {
    programs.push_back(compile_step(model, recipe, interface, {r, ranks}).value());
  }
  if (ranks == 1) return std::make_unique<Session>(std::move(programs.front()), backend);
  return std::make_unique<ReplicatedSession>(std::move(programs), cpu_devices(ranks), 1);
}

std::vector<float> tensor_of(const std::filesystem::path& file, const std::string& name) {
  const auto opened = SafetensorsFile::open(file).value();
  const TensorView* t = opened.find(name);
  if (t == nullptr) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  std::vector<float> values(t->bytes.size() / sizeof(float));
  std::memcpy(values.data(), t->bytes.data(), t->bytes.size());
  return values;
}

void expect_near_series(const std::map<int64_t, double>& got,
                        const std::map<int64_t, double>& expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, value] : expected) {
    EXPECT_NEAR(got.at(step), value, bound * std::max(1.0, std::fabs(value))) << "step " << step;
  }
}

// After one step from a known state, exactly those rows differ that the op reports as gathered.
TEST(SampledHead, UpdatesOnlyTheSampledRows) {
  constexpr int64_t kClasses = 400, kSamples = 12;
  const ModelInterface interface { {8}, 0, TargetForm::kClass, kClasses };
  for (const char* type : {"sgd", "adamw", "rmsprop", "lion"}) {
    SCOPED_TRACE(type);
    ModelSpec model;
    model.layers = {{"head", "Gemm", {}, {}}};
    model.loss = sampled(kSamples);
    Recipe recipe;
    recipe.batch_size = 4;
    recipe.optimizer = default_optimizer(type);
    recipe.optimizer.weight_decay = 0.1;
    recipe.optimizer.momentum = std::string_view(type) == "sgd" ? 0.9 : 0;
    RunPrograms programs = compile_step(model, recipe, interface).value();
    for (const TensorInfo& t : programs.train.program.graph.tensors()) {
      if (t.role != Role::kGradient && t.role != Role::kActivation) continue;
      EXPECT_LT(t.type.shape.elements(), kClasses * 8) << t.name;
    }
    const auto backend = make_cpu_backend(1);
    Session session(std::move(programs), *backend);
    session.initialize(3);
    const auto weights = [&] {
      const Snapshot snapshot = session.snapshot();
      const auto& all = snapshot.weights;
      const auto head = std::ranges::find(all, "head.weight", &TensorView::name);
      std::vector<float> values(head->bytes.size() / sizeof(float));
      std::memcpy(values.data(), head->bytes.data(), head->bytes.size());
      return values;
    };
    const std::vector<float> before = weights();
    std::vector<float> x(32);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    const std::vector<int32_t> labels = {5, 399, 5, 123};
    session.run_step({std::as_bytes(std::span(x)), std::as_bytes(std::span(labels)), 0, 0.1f});
    const std::vector<float> after = weights();
    ASSERT_EQ(before.size(), after.size());
    std::set<int64_t> moved;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] != after[i]) moved.insert(static_cast<int64_t>(i / 8));
    }
    for (const int32_t label : labels) EXPECT_TRUE(moved.contains(label)) << label;
    EXPECT_GE(std::ssize(moved), kSamples);
    EXPECT_LE(std::ssize(moved), kSamples + 3);
  }
}

TEST(SampledHead, FollowsTheSameCurveOnAnyNumberOfDevices) {
  const Workspace w;
  make_zipf_classes(w, 300, 400);
  const std::vector<std::pair<const char*, Change>> ways = {
      {"plain", nullptr},
      {"clipped",
       [](TrainJob& job) {
         job.recipe.clip_norm = 0.3;
         job.recipe.metrics = {"gradient_norm"};
       }},
      {"uniform",
       [](TrainJob& job) {
         job.model.loss.attributes.set("distribution", std::string("uniform"));
       }},
      {"averaged", [](TrainJob& job) { job.recipe.ema_decay = 0.9; }},
      {"without bias",
       [](TrainJob& job) { job.model.layers[2].attributes.set("bias", int64_t{0}); }},
      {"frozen head",
       [](TrainJob& job) { job.recipe.parameter_groups = {{.match = "head.*", .freeze = true}}; }},
      {"frozen below",
       [](TrainJob& job) { job.recipe.parameter_groups = {{.match = "gemm1.*", .freeze = true}}; }},
      {"muon", [](TrainJob& job) {
         job.recipe.optimizer = default_optimizer("muon");
         job.recipe.optimizer.learning_rate = 0.002;
       }}};
  for (const auto& [name, change] : ways) {
    SCOPED_TRACE(name);
    Recorder one;
    const TrainResult alone = run(sampled_job_on(w, std::string(name) + "1", 20, change), 1, one);
    EXPECT_EQ(alone.arena_planned_bytes, alone.arena_used_bytes);
    ASSERT_EQ(one.series["train/loss"].size(), 30u);
    EXPECT_FALSE(one.series.contains("train/accuracy")) << "no step has all scores";
    for (const int64_t ranks : {2, 4}) {
      Recorder many;
      const std::string of = std::string(name) + std::to_string(ranks);
      const TrainResult result = run(sampled_job_on(w, of, 20, change), ranks, many);
      EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
      const double bound = std::string_view(name) == "muon" ? 1e-3 : 2e-5;
      for (const char* series : {"train/loss", "train/gradient_norm", "test/loss"}) {
        expect_near_series(many.series[series], one.series[series], bound);
      }
    }
  }
}

// A step has one draw, however many micro-batches it has, so that it equals the loss of all rows
// together.
TEST(SampledHead, MicroBatchesShareAStepsDrawAndRows) {
  const Workspace w;
  make_zipf_classes(w, 300, 400);
  for (const char* type : {"sgd", "adamw", "lion"}) {
    const auto job = [&](int64_t ranks, int64_t micro_batches) {
      return sampled_job_on(
          w, type + std::to_string(ranks * 10 + micro_batches), 20, [&](TrainJob& changed) {
            changed.recipe.accumulate_steps = micro_batches;
            changed.recipe.optimizer = default_optimizer(type);
            changed.recipe.optimizer.learning_rate = std::string_view(type) == "sgd" ? 0.1 : 0.001;
            changed.recipe.optimizer.weight_decay = 0.01;
            changed.recipe.metrics = {"gradient_norm"};
          });
    };
    Recorder one;
    run(job(1, 1), 1, one);
    for (const auto& [ranks, micro_batches] : {std::pair(1, 2), {1, 4}, {2, 2}, {4, 2}}) {
      SCOPED_TRACE(type + std::to_string(ranks) + " ranks by " + std::to_string(micro_batches));
      Recorder many;
      const TrainResult result = run(job(ranks, micro_batches), ranks, many);
      EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
      EXPECT_EQ(many.plan.memory.total(), result.arena_planned_bytes);
      EXPECT_NEAR(many.series["train/loss"].at(1), one.series["train/loss"].at(1), 1e-6);
      EXPECT_NEAR(many.series["train/loss"].at(2), one.series["train/loss"].at(2), 1e-6);
      for (const char* series : {"train/loss", "train/gradient_norm", "test/loss"}) {
        expect_near_series(many.series[series], one.series[series], 2e-5);
      }
    }
  }
}

TEST(SampledHead, GivesTheSameBitsTwiceAndAfterAResume) {
  const Workspace w;
  make_zipf_classes(w, 300, 400);
  testing::expect_to_resume_by_micro_batches([&](const std::string& name, const Change& change) {
    return sampled_job_on(w, name, 20, change);
  });
}

// The classes are a text's vocabulary, the rows are positions, and precision may be 16 bits.
TEST(SampledHead, TrainsOverAVocabularyInEveryPrecision) {
  const Workspace w;
  testing::make_text(w, 4000);
  std::map<std::string, double> reached;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    Recorder r;
    run(sampled_job_on(w, "text" + std::string(name_of(precision)), 6,
                       [&](TrainJob& job) {
                         job.model.layers = {
                             {"", "Embedding", {}, {{"embedding_dim", int64_t{12}}}},
                             {"", "Gelu", {}, {}},
                             {"head", "Linear", {}, {}}};
                         job.recipe.context_length = 6;
                         job.recipe.steps = 60;
                         job.recipe.precision = precision;
                       }),
        1, r);
    const std::map<int64_t, double>& tests = r.series["test/loss"];
    ASSERT_FALSE(tests.empty());
    reached[std::string(name_of(precision))] = tests.rbegin()->second;
    EXPECT_LT(tests.rbegin()->second, 2.3) << "log 14 = 2.6 where nothing is learned";
  }
  EXPECT_NEAR(reached["bf16"], reached["fp32"], 0.05);
  EXPECT_NEAR(reached["fp16"], reached["fp32"], 0.05);
}

// Compared by the exact loss of the test rows, which both runs report.
TEST(SampledHead, ReachesTheMetricsOfTheFullLoss) {
  const Workspace w;
  make_zipf_classes(w, 1000, 6000);
  const auto reached = [&](const char* name, int64_t samples) {
    Recorder r;
    run(sampled_job_on(w, name, samples,
                       [](TrainJob& job) {
                         job.model.layers[0].attributes.set("units", int64_t{64});
                         job.recipe.steps = 600;
                         job.recipe.batch_size = 64;
                         job.recipe.optimizer.weight_decay = 0;
                       }),
        1, r);
    return r.series["test/loss"].rbegin()->second;
  };
  const double all = reached("all", 0), some = reached("some", 200);
  std::printf("test/loss: %.3f over all 1000 classes, %.3f over 200 samples\n", all, some);
  EXPECT_LT(all, 5.0) << "log 1000 = 6.9 where nothing is learned";
  EXPECT_LT(some, all + 0.35);
}

TEST(SampledHead, PredictsAndEvaluatesWithAllClasses) {
  const Workspace w;
  make_zipf_classes(w, 300, 400);
  const TrainJob job = sampled_job_on(w, "job", 20);
  Recorder r;
  run(job, 1, r);
  const auto backend = make_cpu_backend(1);
  const auto predictor = Predictor::open(job.model_output, *backend).value();
  EXPECT_EQ(std::ssize(predictor->schema().target.classes), 300);
  EXPECT_EQ(std::ssize(tensor_of(job.model_output / "model.safetensors", "head.weight")), 300 * 24);
}

// With more classes than kScoresReadMax, the scores are not read back in each step; trained with
// the loss over all classes and with the sampled loss.
TEST(VeryManyClasses, TrainOnOneDeviceAndSplitOverSeveral) {
  constexpr int64_t kClasses = kScoresReadMax + 1003;
  ModelSpec model;
  model.layers = {{"head", "Gemm", {}, {}}};
  const ModelInterface interface { {8}, 0, TargetForm::kClass, kClasses };
  const auto losses = [&](int64_t ranks, Shard shard, int64_t samples) {
    ModelSpec spec = model;
    if (samples > 0) spec.loss = sampled(samples);
    Recipe recipe;
    recipe.batch_size = 8;
    recipe.optimizer = default_optimizer("adam");
    recipe.shard = shard;
    const auto backend = make_cpu_backend(1);
    const auto session = session_of(spec, recipe, interface, ranks, *backend);
    session->initialize(1);
    std::map<int64_t, double> out;
    for (int64_t step = 0; step < 4; ++step) {
      std::vector<float> x(64);
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i) * 0.7f);
      std::vector<int32_t> labels;
      for (int64_t n = 0; n < 8; ++n) {
        labels.push_back(static_cast<int32_t>(n * 65537 * (step + 1) % kClasses));
      }
      const auto result = session->run_step(
          {std::as_bytes(std::span(x)), std::as_bytes(std::span(labels)), step, 0.01f});
      EXPECT_TRUE(result.logits.empty());
      out[step] = result.loss;
    }
    return out;
  };
  const auto exact = losses(1, Shard::kNone, 0), some = losses(1, Shard::kNone, 64);
  EXPECT_NEAR(exact.at(0), std::log(static_cast<double>(kClasses)), 0.5);
  for (const int64_t ranks : {2, 4}) {
    expect_near_series(losses(ranks, Shard::kHead, 0), exact, 1e-5);
    expect_near_series(losses(ranks, Shard::kNone, 64), some, 1e-5);
  }
}

// Tests all stages from a file to predictions, which list only the most probable classes.
TEST(VeryManyClasses, AreIngestedTrainedEvaluatedAndPredicted) {
  const Workspace w;
  constexpr int64_t kClasses = kClassesListedMax + 5;
  make_zipf_classes(w, kClasses, kClasses + 100);
  const TrainJob job = sampled_job_on(w, "job", 64, [](TrainJob& changed) {
    changed.model.layers[0].attributes.set("units", int64_t{4});
    changed.recipe.steps = 2;
    changed.recipe.validation_split = 0;
    changed.recipe.evaluate_every_steps = 0;
  });
  Recorder r;
  const TrainResult result = run(job, 1, r);
  EXPECT_TRUE(result.baselines.empty()) << "each row would cost as much as all of its scores";
  EXPECT_NEAR(r.series["test/loss"].rbegin()->second, std::log(static_cast<double>(kClasses)), 2);
  const auto backend = make_cpu_backend(1);
  const auto predictor = Predictor::open(job.model_output, *backend).value();
  const auto rows = parse_raw_rows(predictor->schema(), "csv",
                                   "x0,x1,x2,x3,x4,x5,x6,x7\n1,2,3,4,5,6,7,8\n0,0,0,0,0,0,0,1\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  for (const Prediction& p : predictor->predict(*rows)) {
    ASSERT_EQ(std::ssize(p.probabilities), kTopClasses);
    ASSERT_EQ(p.top.size(), p.probabilities.size());
    EXPECT_EQ(p.top.front(), p.label);
    EXPECT_TRUE(std::ranges::is_sorted(p.probabilities, std::ranges::greater()));
    EXPECT_EQ(std::set<int64_t>(p.top.begin(), p.top.end()).size(), p.top.size());
  }
  const auto evaluation = evaluate_model(job.model_output, job.dataset, "test", {}, *backend);
  ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
  EXPECT_TRUE(evaluation->confusion.empty());
  EXPECT_EQ(evaluation->rows, 64);
  for (const char* metric : {"confusion_matrix", "roc_auc"}) {
    const auto refused = evaluate_model(job.model_output, job.dataset, "test", {metric}, *backend);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(
        refused.error().message,
        "recipe.metrics[0]: '" + std::string(metric) +
            "' stores numbers for each pair of classes or of class and row, and there are 65541 "
            "classes, expected at most 4096; top_K_accuracy has no such limit");
  }
}

// Expects the losses of tests/golden/make_sampled_golden.py, on one device and split over several.
TEST(VeryManyClasses, HaveTheLossesOfPyTorch) {
  std::ifstream file(testing::source_path("tests/golden/sampled_softmax.json"));
  const auto golden = nlohmann::json::parse(file);
  const auto& exact = golden["exact"];
  const int64_t classes = exact["classes"], width = golden["features"], rows = golden["batch"];
  const auto uniform = [&](const char* name, int64_t step, int64_t i) {
    return math::uniform01<double>(math::philox_u32(
        golden["seed"], stream_of(name), static_cast<uint64_t>(step), static_cast<uint64_t>(i)));
  };
  ModelSpec model;
  model.layers = {{"fc1", "Gemm", {}, {{"units", golden["hidden"].get<int64_t>()}}},
                  {"", "Tanh", {}, {}},
                  {"head", "Gemm", {}, {}}};
  Recipe recipe;
  recipe.batch_size = rows;
  recipe.optimizer = default_optimizer("adam");
  recipe.optimizer.learning_rate = exact["learning_rate"];
  const ModelInterface interface { {width}, 0, TargetForm::kClass, classes };
  for (const int64_t ranks : {1, 2, 4}) {
    recipe.shard = ranks == 1 ? Shard::kNone : Shard::kHead;
    const auto backend = make_cpu_backend(1);
    const auto session = session_of(model, recipe, interface, ranks, *backend);
    session->initialize(golden["seed"]);
    for (int64_t step = 0; step < std::ssize(exact["losses"]); ++step) {
      std::vector<float> x;
      std::vector<int32_t> labels;
      for (int64_t n = 0; n < rows; ++n) {
        const double u = uniform("sampled/label", step % 2, n);
        labels.push_back(static_cast<int32_t>(static_cast<double>(classes) * u * u * u));
        for (int64_t f = 0; f < width; ++f) {
          const double lean = labels.back() % width == f ? 0.75 : 0;
          x.push_back(
              static_cast<float>(2 * uniform("sampled/x", step % 2, n * width + f) - 1 + lean));
        }
      }
      const auto rate = static_cast<float>(recipe.optimizer.learning_rate);
      const double loss = session
                              ->run_step({std::as_bytes(std::span(x)),
                                          std::as_bytes(std::span(labels)), step, rate})
                              .loss;
      const double wanted = exact["losses"][static_cast<size_t>(step)];
      EXPECT_NEAR(loss, wanted, 1e-5) << "step " << step << " on " << ranks;
    }
  }
}

TEST(VeryManyClasses, HaveTheCrossEntropyOfAll) {
  std::vector<float> z(kScoresReadMax + 23);
  for (size_t k = 0; k < z.size(); ++k) z[k] = 5 * std::sin(static_cast<float>(k));
  z[17] = 30;
  double sum = 0;
  for (const float x : z) sum += std::exp(static_cast<double>(x) - 30);
  for (const int64_t label : {int64_t{17}, int64_t{0}, std::ssize(z) - 1}) {
    const double expected = 30 + std::log(sum) - static_cast<double>(z[static_cast<size_t>(label)]);
    EXPECT_NEAR(cross_entropy(z, label), expected, 1e-6 * std::max(1.0, expected)) << label;
  }
}

TEST(SampledHead, WarnsOfClassesThatAreNotSortedByFrequency) {
  const Workspace w;
  make_zipf_classes(w, 300, 900);
  const TrainJob job = sampled_job_on(w, "a", 20);
  DatasetSchema schema = read_schema(job.dataset).value();
  const auto warning = [&](const std::string& distribution) {
    ModelSpec model = job.model;
    model.loss.attributes.set("distribution", distribution);
    const JobPlan plan = plan_job(model, job.recipe, schema, PlanDump::kNone).value();
    const auto found = std::ranges::find_if(plan.warnings, [](const std::string& line) {
      return line.find("sampled_softmax") != line.npos;
    });
    return found == plan.warnings.end() ? std::string() : *found;
  };
  EXPECT_EQ(warning("log_uniform"), "") << "Zipf's law";
  std::ranges::reverse(schema.statistics->classes);
  EXPECT_NE(warning("log_uniform").find("use distribution: uniform"), std::string::npos);
  EXPECT_EQ(warning("uniform"), "");
}

TEST(SampledHead, TakesLessMemoryAndWorkThanAllClasses) {
  const Workspace w;
  make_zipf_classes(w, 2000, 2100);
  const auto plan_of = [&](int64_t samples) {
    const TrainJob job = sampled_job_on(w, "plan", samples);
    return plan_run(job.model, job.recipe, read_schema(job.dataset).value()).value();
  };
  const RunPlan all = plan_of(0), some = plan_of(50);
  EXPECT_EQ(some.parameter_count, all.parameter_count);
  EXPECT_EQ(some.trained_parameter_count, all.trained_parameter_count);
  EXPECT_LT(some.memory.gradient_bytes, all.memory.gradient_bytes / 5);
  EXPECT_LT(some.flops_per_step, all.flops_per_step / 5);
  EXPECT_GT(some.work.steps, 0);
  // The changes that would make another job fit are not available to this job.
  const TrainJob job = sampled_job_on(w, "fit", 50);
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t ranks : {1, 2}) {
    const auto fit =
        find_fit(job.model, job.recipe, schema, some.memory.total() / 2, {true, true, true}, ranks);
    EXPECT_FALSE(fit.has_value());
  }
}

TEST(SampledHead, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_zipf_classes(w, 300, 400);
  const auto refusal = [&](const Change& change, int64_t ranks = 1) {
    const TrainJob job = sampled_job_on(w, "a", 20, change);
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(nullptr), "");
  EXPECT_EQ(
      refusal([](TrainJob& job) { job.model.loss = sampled(151); }),
      "model.loss.sampled_softmax.samples: 151 is more than half of the 300 classes, expected "
      "1..150, or the loss softmax_cross_entropy, which counts all of them");
  EXPECT_EQ(refusal([](TrainJob& job) { job.model.loss.attributes = {}; }),
            "model.loss.sampled_softmax: samples: is required: a whole number in 1..1048576");
  for (const Shard shard : {Shard::kHead, Shard::kOptimizer}) {
    EXPECT_EQ(refusal([&](TrainJob& job) { job.recipe.shard = shard; }, 2),
              "resources.shard: " + std::string(name_of(shard)) +
                  " cannot be combined with model.loss: sampled_softmax, which updates single rows "
                  "of the "
                  "head; expected shard: none, or the loss softmax_cross_entropy");
  }
  EXPECT_EQ(refusal([](TrainJob& job) { job.recipe.optimizer = default_optimizer("adafactor"); }),
            "recipe.optimizer: adafactor scales by the whole head and model.loss: sampled_softmax "
            "updates single rows of it; expected another optimizer, or the loss "
            "softmax_cross_entropy");
  EXPECT_EQ(refusal([](TrainJob& job) {
              job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"head"}};
            }),
            "model.loss: sampled_softmax needs a gemm or linear layer as the model's last layer, "
            "without recipe.lora on it, and head is a Add, expected softmax_cross_entropy");
}

}  // namespace
}  // namespace trainyard
