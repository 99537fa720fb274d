// Tests of embedding: {sparse: true} in whole jobs: only the rows of a step's tokens change; only
// the table and its state are as large as the table; the numbers are those of PyTorch and of the
// plain layer; micro-batches and devices share one list of rows; and unsupported combinations are
// refused by their field.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/philox.h"
#include "src/inference/evaluate_model.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"
#include "src/train/trainer.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
using testing::Change;
using testing::cpu_devices;
using testing::Recorder;
using testing::run;
using testing::weights_of;
using testing::Workspace;

constexpr int64_t kSparse = 1, kPlain = 0;

LayerSpec embedding(int64_t sparse, int64_t width, int64_t rows = 0) {
  Attributes attributes{{"embedding_dim", width}};
  if (rows > 0) attributes.set("num_embeddings", rows);
  if (sparse == kSparse) attributes.set("sparse", sparse);
  return {"embedding", "Embedding", {}, attributes};
}

/// Returns a job that predicts the next letter of a text from windows of 4 letters, 6 windows a
/// step. The text has 14 letters, the table 300 rows.
TrainJob job_on(const Workspace& w, const std::string& name, int64_t sparse,
                const Change& change = nullptr) {
  TrainJob job = testing::plain_job(w, name);
  job.model = {};
  job.model.layers = {embedding(sparse, 12, 300), {"", "Tanh", {}, {}}, {"head", "Linear", {}, {}}};
  job.recipe.steps = 30;
  job.recipe.batch_size = 8;
  job.recipe.context_length = 4;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  return job;
}
void plain_descent(TrainJob& job) {
  job.recipe.optimizer = default_optimizer("sgd");
  job.recipe.optimizer.momentum = 0;
  job.recipe.optimizer.weight_decay = 0;
  job.recipe.optimizer.learning_rate = 0.3;
}
void by_two_micro_batches(TrainJob& job) { job.recipe.accumulate_steps = 2; }

void expect_near(const std::map<int64_t, double>& got, const std::map<int64_t, double>& expected,
                 double bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, value] : expected) {
    EXPECT_NEAR(got.at(step), value, bound * std::max(1.0, std::fabs(value))) << "step " << step;
  }
}

/// Runs the job and expects it to use the planned memory.
Recorder trained(const TrainJob& job, int64_t ranks = 1) {
  Recorder recorder;
  const TrainResult result = run(job, ranks, recorder);
  EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
  EXPECT_EQ(recorder.plan.memory.total(), result.arena_planned_bytes);
  return recorder;
}

/// Single training steps on given token rows and classes.
class Steps {
 public:
  Steps(const ModelSpec& model, const Recipe& recipe, const ModelInterface& interface,
        int64_t ranks = 1)
      : backend_(testing::make_tested_backend(2)),
        rate_(static_cast<float>(recipe.optimizer.learning_rate)) {
    const DeviceTraits traits = ranks == 1 ? backend_->traits() : DeviceTraits{};
    std::vector<RunPrograms> programs;
    for (int64_t r = 0; r < ranks; ++r) {
      programs.push_back(compile_step(model, recipe, interface, {r, ranks}, traits).value());
    }
    if (ranks == 1) {
      session_ = std::make_unique<Session>(std::move(programs.front()), *backend_,
                                           recipe.accumulate_steps);
    } else {
      session_ = std::make_unique<ReplicatedSession>(std::move(programs), cpu_devices(ranks),
                                                     recipe.accumulate_steps);
    }
    session_->initialize(recipe.seed);
  }
  double step(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) {
    return session_
        ->run_step(
            {std::as_bytes(std::span(tokens)), std::as_bytes(std::span(labels)), steps_++, rate_})
        .loss;
  }
  /// Returns a tensor of the model or of the optimizer, by name.
  std::vector<float> tensor(const std::string& name) const {
    const Snapshot snapshot = session_->snapshot();
    for (const auto* all : {&snapshot.weights, &snapshot.optimizer}) {
      const auto found = std::ranges::find(*all, name, &TensorView::name);
      if (found == all->end()) continue;
      std::vector<float> values(found->bytes.size() / sizeof(float));
      std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
      return values;
    }
    ADD_FAILURE() << name << " is missing";
    return {};
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TrainingSession> session_;
  const float rate_;
  int64_t steps_ = 0;
};

ModelSpec classifier(int64_t sparse, int64_t width) {
  ModelSpec model;
  model.layers = {embedding(sparse, width), {"", "Flatten", {}, {}}, {"head", "Gemm", {}, {}}};
  return model;
}

std::set<int64_t> rows_that_differ(const std::vector<float>& a, const std::vector<float>& b,
                                   int64_t width) {
  std::set<int64_t> rows;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) rows.insert(static_cast<int64_t>(i) / width);
  }
  return rows;
}

// Weights and state change in exactly the rows of the tokens, over all micro-batches and ranks.
TEST(SparseLookup, UpdatesOnlyTheRowsThatAStepUses) {
  constexpr int64_t kTokens = 500, kWidth = 8;
  const ModelInterface interface { {3}, kTokens, TargetForm::kClass, 4 };
  const std::vector<int32_t> tokens = {7, 499, 7, 0, 31, 7, 31, 31, 31, 7, 250, 2};
  for (const char* type : {"sgd", "adam", "adamw", "rmsprop", "lion", "muon"}) {
    for (const auto& [ranks, micro_batches] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}, {4, 1}}) {
      SCOPED_TRACE(std::string(type) + " on " + std::to_string(ranks) + " by " +
                   std::to_string(micro_batches));
      Recipe recipe;
      recipe.batch_size = 4;
      recipe.accumulate_steps = micro_batches;
      recipe.optimizer = default_optimizer(type);
      recipe.optimizer.learning_rate = 0.1;
      recipe.optimizer.weight_decay = 0.1;
      if (std::string_view(type) == "sgd") recipe.optimizer.momentum = 0.9;
      const RunPrograms programs =
          compile_step(classifier(kSparse, kWidth), recipe, interface, {0, ranks}).value();
      for (const TensorInfo& t : programs.train.program.graph.tensors()) {
        if (t.role == Role::kParameter || t.role == Role::kOptimizerState) continue;
        EXPECT_LT(t.type.shape.elements(), kTokens * kWidth / 4) << t.name;
      }
      Steps steps(classifier(kSparse, kWidth), recipe, interface, ranks);
      const auto before = steps.tensor("embedding.weight");
      steps.step(tokens, {1, 0, 3, 2});
      EXPECT_EQ(rows_that_differ(steps.tensor("embedding.weight"), before, kWidth),
                (std::set<int64_t>{0, 2, 7, 31, 250, 499}));
    }
  }
}

// Trains on a batch in which all tokens are the same, and on one with more tokens than the table
// has rows.
TEST(SparseLookup, AcceptsEqualTokensAndMoreTokensThanRows) {
  for (const int64_t tokens_of : {5, 500}) {
    const ModelInterface interface { {3}, tokens_of, TargetForm::kClass, 4 };
    Recipe recipe;
    recipe.batch_size = 4;
    recipe.optimizer = default_optimizer("sgd");
    recipe.optimizer.learning_rate = 0.1;
    Steps plain(classifier(kPlain, 8), recipe, interface);
    Steps sparse(classifier(kSparse, 8), recipe, interface);
    for (int32_t step = 0; step < 3; ++step) {
      const std::vector<int32_t> equal(12, 3 + step % 2);
      EXPECT_EQ(sparse.step(equal, {0, 1, 2, 3}), plain.step(equal, {0, 1, 2, 3}));
      const std::vector<int32_t> all = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 0, 4};
      EXPECT_EQ(sparse.step(all, {0, 1, 2, 3}), plain.step(all, {0, 1, 2, 3}));
    }
    EXPECT_EQ(sparse.tensor("embedding.weight"), plain.tensor("embedding.weight"));
  }
}

// Without momentum and weight decay, the plain layer also leaves a row unchanged whose token does
// not occur.
TEST(SparseLookup, IsThePlainLayerUnderPlainDescent) {
  const Workspace w;
  testing::make_text(w, 2000);
  const std::vector<std::pair<const char*, Change>> ways = {
      {"plain", nullptr},
      {"micro-batches", by_two_micro_batches},
      {"recomputed", [](TrainJob& job) { job.recipe.recompute = Recompute::kFull; }},
      {"bf16", [](TrainJob& job) { job.recipe.precision = Precision::kBf16; }},
      {"fp16", [](TrainJob& job) { job.recipe.precision = Precision::kFp16; }},
      {"clipped by value", [](TrainJob& job) { job.recipe.clip_value = 1e-3; }},
      {"averaged", [](TrainJob& job) { job.recipe.ema_decay = 0.9; }},
      {"more tokens than rows",
       [](TrainJob& job) { job.model.layers[0].attributes.set("num_embeddings", int64_t{14}); }}};
  for (const auto& [name, change] : ways) {
    SCOPED_TRACE(name);
    const auto job = [&](int64_t sparse) {
      return job_on(w, std::string(name) + (sparse == kSparse ? "-sparse" : "-plain"), sparse,
                    [&](TrainJob& changed) {
                      plain_descent(changed);
                      changed.recipe.steps = 50;
                      if (change) change(changed);
                    });
    };
    const Recorder plain = trained(job(kPlain)), sparse = trained(job(kSparse));
    ASSERT_EQ(plain.series.at("train/loss").size(), 50u);
    EXPECT_EQ(sparse.series.at("train/loss"), plain.series.at("train/loss"));
    EXPECT_EQ(sparse.series.at("test/loss"), plain.series.at("test/loss"));
    EXPECT_TRUE(weights_of(job(kSparse)) == weights_of(job(kPlain)));
    EXPECT_EQ(sparse.plan.parameter_count, plain.plan.parameter_count);
    EXPECT_EQ(sparse.plan.trained_parameter_count, plain.plan.trained_parameter_count);
  }
}

// The norm sums fewer numbers than that of the plain layer, in another order.
TEST(SparseLookup, ClipsByTheNormOfThePlainLayer) {
  const Workspace w;
  testing::make_text(w, 2000);
  const auto clipped = [](TrainJob& job) {
    plain_descent(job);
    job.recipe.clip_norm = 0.2;
    job.recipe.metrics = {"gradient_norm"};
  };
  const Recorder plain = trained(job_on(w, "plain", kPlain, clipped));
  const Recorder sparse = trained(job_on(w, "sparse", kSparse, clipped));
  ASSERT_EQ(plain.series.at("train/gradient_norm").size(), 30u);
  for (const char* series : {"train/loss", "train/gradient_norm", "test/loss"}) {
    expect_near(sparse.series.at(series), plain.series.at(series), 1e-5);
  }
}

TEST(SparseLookup, FollowsTheSameCurveOnAnyNumberOfDevicesAndMicroBatches) {
  const Workspace w;
  testing::make_text(w, 2000);
  const std::vector<std::pair<const char*, Change>> ways = {
      {"adamw", nullptr},
      {"clipped", [](TrainJob& job) { job.recipe.clip_norm = 0.3; }},
      {"averaged", [](TrainJob& job) { job.recipe.ema_decay = 0.9; }},
      {"split head", [](TrainJob& job) { job.recipe.shard = Shard::kHead; }},
      {"sampled", [](TrainJob& job) {
         job.model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", int64_t{5}}}};
       }}};
  for (const auto& [name, change] : ways) {
    const auto job = [&](int64_t ranks, int64_t micro_batches) {
      return job_on(w, std::string(name) + std::to_string(ranks * 10 + micro_batches), kSparse,
                    [&](TrainJob& changed) {
                      if (change) change(changed);
                      if (ranks == 1) changed.recipe.shard = Shard::kNone;
                      changed.recipe.accumulate_steps = micro_batches;
                    });
    };
    const Recorder one = trained(job(1, 1));
    ASSERT_EQ(one.series.at("train/loss").size(), 30u);
    for (const auto& [ranks, micro_batches] : {std::pair(1, 2), {1, 4}, {2, 1}, {4, 1}, {2, 2}}) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(ranks) + " by " +
                   std::to_string(micro_batches));
      const Recorder many = trained(job(ranks, micro_batches), ranks);
      // The first steps have a stricter bound, since rounding errors have not grown yet.
      EXPECT_NEAR(many.series.at("train/loss").at(1), one.series.at("train/loss").at(1), 1e-6);
      EXPECT_NEAR(many.series.at("train/loss").at(2), one.series.at("train/loss").at(2), 1e-6);
      expect_near(many.series.at("train/loss"), one.series.at("train/loss"), 2e-5);
      expect_near(many.series.at("test/loss"), one.series.at("test/loss"), 2e-5);
    }
  }
}

TEST(SparseLookup, GivesTheSameBitsTwiceAndAfterAResume) {
  const Workspace w;
  testing::make_text(w, 2000);
  testing::expect_to_resume_by_micro_batches([&](const std::string& name, const Change& change) {
    return job_on(w, name, kSparse, change);
  });
}

// Checkpoints and models do not depend on how the table was trained.
TEST(SparseLookup, EvaluatesAndPredictsLikeThePlainLayer) {
  const Workspace w;
  testing::make_text(w, 2000);
  const TrainJob sparse = job_on(w, "sparse", kSparse), plain = job_on(w, "plain", kPlain);
  const Recorder of_sparse = trained(sparse);
  const ModelInterface interface = read_schema(sparse.dataset).value().interface(4);
  const auto dump = [&](const TrainJob& job) {
    return compile_inference(job.model, interface, 3, nullptr, Precision::kFp32)
        .value()
        .program.graph.dump();
  };
  EXPECT_EQ(dump(sparse), dump(plain));
  const auto backend = make_cpu_backend(1);
  const auto evaluation =
      evaluate_model(sparse.model_output, sparse.dataset, "test", {}, *backend).value();
  ASSERT_EQ(evaluation.values.front().first, "loss");
  // The two evaluations take batches of different sizes, which sum in different orders.
  const double of_training = of_sparse.series.at("test/loss").at(30);
  EXPECT_NEAR(evaluation.values.front().second, of_training, 2e-6 * of_training);
}

TEST(SparseLookup, OfAFrozenTableChangesNothing) {
  const Workspace w;
  testing::make_text(w, 2000);
  const auto program = [&](int64_t sparse, const Change& change) {
    const TrainJob job = job_on(w, "a", sparse, change);
    const ModelInterface interface = read_schema(job.dataset).value().interface(4);
    return compile_step(job.model, job.recipe, interface).value().train.program.graph.dump();
  };
  const auto frozen = [](TrainJob& job) {
    job.recipe.parameter_groups = {{.match = "embedding.*", .freeze = true}};
  };
  const auto adapted = [](TrainJob& job) {
    job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"head"}};
  };
  EXPECT_EQ(program(kSparse, frozen), program(kPlain, frozen));
  EXPECT_EQ(program(kSparse, adapted), program(kPlain, adapted));
  EXPECT_NE(program(kSparse, nullptr), program(kPlain, nullptr));
}

// The numbers of tests/golden/make_sparse_golden.py, also with micro-batches and on two devices.
TEST(SparseLookup, FollowsPyTorch) {
  std::ifstream file(testing::source_path("tests/golden/sparse_embedding.json"));
  const Json golden = Json::parse(file);
  const auto size = [&](const char* name) { return golden[name].get<int64_t>(); };
  const ModelInterface interface {
    {size("length")}, size("vocabulary"), TargetForm::kClass, size("classes")
  };
  for (const Json& expected : golden["cases"]) {
    for (const auto& [ranks, micro_batches] : {std::pair(1, 1), {1, 3}, {2, 1}, {2, 2}}) {
      SCOPED_TRACE(expected["optimizer"].get<std::string>() + " on " + std::to_string(ranks) +
                   " by " + std::to_string(micro_batches));
      Recipe recipe;
      recipe.seed = golden["seed"];
      recipe.batch_size = size("batch");
      recipe.accumulate_steps = micro_batches;
      recipe.optimizer = default_optimizer(expected["optimizer"].get<std::string>());
      recipe.optimizer.learning_rate = expected["learning_rate"];
      recipe.optimizer.epsilon = golden["epsilon"];
      Steps steps(classifier(kSparse, size("width")), recipe, interface, ranks);
      double worst = 0;
      for (int64_t step = 0; step < std::ssize(expected["losses"]); ++step) {
        std::vector<int32_t> tokens, labels;
        for (int64_t n = 0; n < size("batch"); ++n) {
          for (int64_t t = 0; t < size("length"); ++t) {
            const double u = math::uniform01<double>(math::philox_u32(
                golden["seed"], stream_of("sparse/token"), static_cast<uint64_t>(step),
                static_cast<uint64_t>(n * size("length") + t)));
            tokens.push_back(
                static_cast<int32_t>(static_cast<double>(size("vocabulary")) * u * u * u));
          }
          const auto first = tokens[static_cast<size_t>(n * size("length"))];
          labels.push_back(first % static_cast<int32_t>(size("classes")));
        }
        const double wanted = expected["losses"][static_cast<size_t>(step)];
        const double loss = steps.step(tokens, labels);
        worst = std::max(worst, std::fabs(loss - wanted));
        ASSERT_NEAR(loss, wanted, 1e-5) << "step " << step;
      }
      std::printf("  losses within %.1e\n", worst);
      const std::vector<float> table = steps.tensor("embedding.weight");
      for (int64_t r = 0; r < std::ssize(expected["rows"]); ++r) {
        for (int64_t c = 0; c < size("width"); ++c) {
          const double wanted = expected["rows"][static_cast<size_t>(r)][static_cast<size_t>(c)];
          const auto at = static_cast<size_t>(r * size("row_step") * size("width") + c);
          EXPECT_NEAR(static_cast<double>(table[at]), wanted, 1e-5) << "row " << r;
        }
      }
    }
  }
}

// Checks the planned bytes, and the warning about tables that would profit from `sparse`.
TEST(SparseLookup, IsSuggestedIfATableTakesMostOfAStep) {
  const Workspace w;
  testing::make_text(w, 2000);
  const auto proposal = [&](int64_t sparse, int64_t rows, const Change& change = nullptr) {
    const TrainJob job = job_on(w, "a", sparse, [&](TrainJob& changed) {
      changed.model.layers[0] = embedding(sparse, 32, rows);
      if (change) change(changed);
    });
    const JobPlan plan =
        plan_job(job.model, job.recipe, read_schema(job.dataset).value(), PlanDump::kNone).value();
    const auto found = std::ranges::find_if(plan.warnings, [](const std::string& line) {
      return line.find("sparse: true") != line.npos;
    });
    return found == plan.warnings.end() ? std::string() : *found;
  };
  EXPECT_EQ(proposal(kPlain, 1'000'000),
            "embedding reads at most 32 of its 1000000 rows in a step, and 977 MiB of the 977 MiB "
            "that a step reads and writes are gradients and updates of the other rows; "
            "model.layers[0].embedding.sparse: true updates only the rows that are read");
  EXPECT_NE(proposal(kPlain, 1'000'000, by_two_micro_batches).find("at most 32 of"),
            std::string::npos);
  EXPECT_EQ(proposal(kSparse, 1'000'000), "");
  EXPECT_EQ(proposal(kPlain, 10'000), "") << "which takes no time";
  EXPECT_EQ(proposal(kPlain, 1'000'000,
                     [](TrainJob& job) {
                       job.recipe.parameter_groups = {{.match = "embedding.*", .freeze = true}};
                     }),
            "");
  EXPECT_EQ(proposal(kPlain, 1'000'000,
                     [](TrainJob& job) { job.recipe.optimizer = default_optimizer("adafactor"); }),
            "");
}

TEST(SparseLookup, ComputesGradientsOnlyForTheRowsInUse) {
  const Workspace w;
  testing::make_text(w, 2000);
  const auto plan_of = [&](int64_t sparse) {
    const TrainJob job = job_on(w, "a", sparse, [&](TrainJob& changed) {
      changed.model.layers[0] = embedding(sparse, 32, 100'000);
    });
    return plan_run(job.model, job.recipe, read_schema(job.dataset).value()).value();
  };
  const RunPlan plain = plan_of(kPlain), sparse = plan_of(kSparse);
  EXPECT_GE(plain.memory.gradient_bytes, 100'000 * 32 * 4);
  EXPECT_LT(sparse.memory.gradient_bytes, plain.memory.gradient_bytes / 500);
  EXPECT_EQ(sparse.memory.parameter_bytes, plain.memory.parameter_bytes);
  EXPECT_EQ(sparse.memory.optimizer_bytes, plain.memory.optimizer_bytes);
}

TEST(SparseLookup, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  testing::make_text(w, 2000);
  const auto refusal = [&](const Change& change, int64_t ranks = 1) {
    const TrainJob job = job_on(w, "a", kSparse, change);
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(nullptr), "");
  for (const Shard shard : {Shard::kOptimizer, Shard::kParameters}) {
    EXPECT_EQ(refusal([&](TrainJob& job) { job.recipe.shard = shard; }, 2),
              "resources.shard: " + name_of(shard) +
                  " splits tables within rows, and model.layers[0].embedding.sparse updates "
                  "single rows; expected shard: none, head or mlp, or sparse: false");
  }
  EXPECT_EQ(refusal([](TrainJob& job) { job.recipe.optimizer = default_optimizer("adafactor"); }),
            "recipe.optimizer: adafactor scales by the whole table, and "
            "model.layers[0].embedding.sparse updates single rows of it; expected one of adam, "
            "adamw, lion, muon, rmsprop and sgd, or sparse: false");
  EXPECT_EQ(refusal([](TrainJob& job) {
              job.model.layers[0].attributes.set("num_embeddings", int64_t{14});
              job.model.layers[2].attributes.set("tied_to", std::string("embedding"));
            }),
            "model.layers[0].embedding.sparse: needs a table of its own, and embedding.weight is "
            "read by head/product too, whose gradient has all rows; expected false");
  EXPECT_EQ(
      refusal([](TrainJob& job) { job.model.layers[0].attributes.set("sparse", int64_t{3}); }),
      "model.layers[0] 'embedding': sparse: 3 is out of range, expected 0..1");
  EXPECT_EQ(refusal([](TrainJob& job) {
              job.model.layers[2].attributes.set("sparse", int64_t{1});
            }).substr(0, 50),
            "model.layers[2] 'head': sparse: is not known here,");
}

}  // namespace
}  // namespace trainyard
