// Tests of one job on several devices, which are host backends here: they follow the loss curve of
// one device, their weights have the same bits, they stop and resume, and report which rank stopped
// or failed.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <latch>
#include <thread>

#include "src/checkpoint/safetensors.h"
#include "src/graph/op.h"
#include "src/inference/evaluate_model.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/optim/all_reduce.h"
#include "src/planning/job_plan.h"
#include "src/runtime/host/host_memory.h"
#include "src/runtime/open_backend.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::connected;
using testing::cpu_devices;
using testing::image_model;
using testing::make_dataset;
using testing::plain_job;
using testing::Recorder;
using testing::run;
using testing::weights_of;
using testing::Workspace;

void expect_near(const std::map<int64_t, double>& expected, const std::map<int64_t, double>& got,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (const auto& [step, value] : expected) {
    EXPECT_NEAR(got.at(step), value, tolerance * std::max(1e-3, std::abs(value)))
        << what << " of step " << step;
  }
}

/// Trains the job on one device and on several, and expects the same loss curve. Used for every
/// option of a step that affects the exchange.
void expect_one_curve(const std::function<void(TrainJob&)>& change, double tolerance = 1e-5) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 100, 20);
  TrainJob one = plain_job(w, "one");
  change(one);
  Recorder expected;
  run(one, 1, expected);
  for (const int64_t ranks : {2, 4}) {
    TrainJob job = plain_job(w, std::to_string(ranks));
    change(job);
    Recorder r;
    const TrainResult result = run(job, ranks, r);
    EXPECT_EQ(r.plan.ranks, ranks);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    for (const char* key : {"train/loss", "train/gradient_norm", "val/loss", "test/loss"}) {
      expect_near(expected.series[key], r.series[key], tolerance,
                  std::to_string(ranks) + " ranks: " + key);
    }
    EXPECT_EQ(r.series["train/accuracy"].at(1), expected.series["train/accuracy"].at(1));
  }
}

TEST(Ranks, FollowTheCurveOfOneDevice) {
  expect_one_curve([](TrainJob&) {});
}
TEST(Ranks, FollowTheCurveWithMicroBatchesClippingAndAverage) {
  expect_one_curve([](TrainJob& job) {
    job.recipe.accumulate_steps = 2;
    job.recipe.clip_norm = 0.5;
    job.recipe.ema_decay = 0.9;
    job.recipe.metrics = {"gradient_norm"};
  });
}
TEST(Ranks, FollowTheCurveWithACompletedLastBatch) {
  expect_one_curve([](TrainJob& job) {
    job.recipe.batch_size = 24;  // out of 80 rows
    job.recipe.accumulate_steps = 2;
    job.recipe.drop_last = false;
  });
}
TEST(Ranks, FollowTheCurveWithAdamClippingAndFrozenLayers) {
  expect_one_curve(
      [](TrainJob& job) {
        job.recipe.optimizer = default_optimizer("adamw");
        job.recipe.optimizer.learning_rate = 0.002;
        job.recipe.clip_norm = 1;
        job.recipe.parameter_groups = {{.match = "conv*", .freeze = true}};
      },
      1e-4);  // Adam divides by the square root of small numbers
}
TEST(Ranks, FollowTheCurveInBf16) {
  expect_one_curve([](TrainJob& job) { job.recipe.precision = Precision::kBf16; }, 2e-2);
}

// Each rank has its own running statistics, and the saved model has those of the first rank. The
// ranks' joint evaluation must equal an evaluation of the saved model.
TEST(Ranks, EvaluateTogetherLikeOneDevice) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 100, 45);
  for (const double ema : {0.0, 0.9}) {
    TrainJob job = plain_job(w, "ema-" + std::to_string(ema));
    job.model = image_model();  // with batch normalization
    job.recipe.ema_decay = ema;
    Recorder r;
    run(job, 4, r);
    const auto cpu = make_cpu_backend(1);
    const ModelEvaluation alone =
        evaluate_model(job.model_output, job.dataset, "test", {}, *cpu).value();
    for (const auto& [name, value] : alone.values) {
      ASSERT_TRUE(r.series.contains("test/" + name)) << name;
      EXPECT_NEAR(r.series["test/" + name].rbegin()->second, value, 1e-6 * std::abs(value)) << name;
    }
  }
}

TEST(Ranks, GiveTheSameBitsTwice) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob a = plain_job(w, "a"), b = plain_job(w, "b");
  Recorder ra, rb;
  run(a, 4, ra);
  run(b, 4, rb);
  EXPECT_EQ(weights_of(a), weights_of(b));
  EXPECT_EQ(ra.series["train/loss"], rb.series["train/loss"]);
}

// The model has batch normalization and dropout. The state that each rank has of its own must not
// change a resumed run.
TEST(Ranks, ResumeAsIfNeverStopped) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob whole = plain_job(w, "whole");
  whole.model = image_model();
  Recorder rw;
  run(whole, 2, rw);

  TrainJob parts = plain_job(w, "parts");
  parts.model = image_model();
  parts.recipe.checkpoint_every_steps = 7;
  std::stop_source stop;
  Recorder first;
  first.stop_step = 7;
  first.stop = &stop;
  EXPECT_EQ(train(parts, cpu_devices(2), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  Recorder second;
  run(parts, 2, second);
  EXPECT_EQ(second.plan.first_step, 7);
  EXPECT_TRUE(second.lines.empty()) << second.lines.front();
  EXPECT_EQ(weights_of(parts), weights_of(whole));
}

TEST(Ranks, ACheckpointResumesWithAnotherNumberOfDevices) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob whole = plain_job(w, "whole");
  Recorder rw;
  run(whole, 1, rw);
  TrainJob parts = plain_job(w, "parts");
  parts.recipe.checkpoint_every_steps = 7;
  std::stop_source stop;
  Recorder first;
  first.stop_step = 7;
  first.stop = &stop;
  EXPECT_FALSE(train(parts, cpu_devices(4), local_files(), first, stop.get_token()).ok());
  Recorder second;
  run(parts, 1, second);
  EXPECT_EQ(second.plan.first_step, 7);
  ASSERT_EQ(second.lines.size(), 1u);
  EXPECT_NE(second.lines[0].find(
                "a checkpoint written with backend cpu and 1 threads for each of 4 devices"),
            std::string::npos)
      << second.lines[0];
  for (auto& [step, loss] : second.series["train/loss"]) {
    EXPECT_NEAR(loss, rw.series["train/loss"].at(step), 1e-5 * loss) << step;
  }
}

/// A CPU backend in which a test may run a hook before each kernel.
class DisturbedBackend final : public HostBackend {
 public:
  using Hook = std::function<void(const std::string& node, int run, const KernelArgs& args)>;
  explicit DisturbedBackend(Hook hook) : hook_(std::move(hook)), inner_(make_cpu_backend(1)) {}
  std::string_view name() const override { return "cpu"; }
  bool has_kernel(std::string_view op_type) const override { return inner_->has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return std::make_unique<Disturbed>(inner_->prepare(graph, node), hook_, node.name);
  }
  Status connect(std::span<Backend* const> ranks) override {
    std::vector<Backend*> inner;
    for (Backend* rank : ranks) {
      inner.push_back(dynamic_cast<DisturbedBackend&>(*rank).inner_.get());
    }
    return inner.front()->connect(inner);
  }
  Communicator* communicator() override { return inner_->communicator(); }

 private:
  class Disturbed final : public Kernel {
   public:
    Disturbed(std::unique_ptr<Kernel> inner, const Hook& hook, std::string name)
        : inner_(std::move(inner)), hook_(hook), name_(std::move(name)) {}
    int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
    void run(const KernelArgs& args) override {
      hook_(name_, ++runs_, args);
      inner_->run(args);
    }

   private:
    std::unique_ptr<Kernel> inner_;
    const Hook& hook_;
    std::string name_;
    int runs_ = 0;
  };
  Hook hook_;
  std::unique_ptr<Backend> inner_;
};

/// A session of `ranks` ranks, the last of which runs the hook, and random inputs.
struct Disturbance {
  Disturbance(int64_t ranks, DisturbedBackend::Hook hook, Shard shard = Shard::kNone) {
    make_dataset(w, true, 100);
    TrainJob job = plain_job(w, "a");
    job.recipe.shard = shard;
    const DatasetSchema schema = read_schema(job.dataset).value();
    const RunShape shape = check_recipe(job.recipe, job.model, schema, ranks).value();
    std::vector<RunPrograms> programs;
    std::vector<std::shared_ptr<Backend>> backends;
    for (int64_t r = 0; r < ranks; ++r) {
      programs.push_back(compile_run(job.model, job.recipe, schema, shape, r).value());
      backends.push_back(std::make_shared<DisturbedBackend>(
          r + 1 == ranks ? hook : [](const std::string&, int, const KernelArgs&) {}));
    }
    const StepLimits limits{.first_s = 2.4, .least_s = 2.4, .times = 1, .grace_s = 0.3};
    session =
        std::make_unique<ReplicatedSession>(std::move(programs), connected(backends), 1, limits);
    session->initialize(1);
    input.assign(16 * 64, 0.5f);
    target.assign(16, 1);
  }
  void step(int64_t index) {
    session->run_step(
        {std::as_bytes(std::span(input)), std::as_bytes(std::span(target)), index, 0.1f});
  }
  Workspace w;
  std::unique_ptr<ReplicatedSession> session;
  std::vector<float> input;
  std::vector<int32_t> target;
};

template <typename E, typename F>
std::string thrown(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing of the kind was thrown";
}

TEST(Ranks, F32TheFirstThatStopsIsNamed) {
  std::latch release(1);
  Disturbance d(4, [&](const std::string& node, int run, const KernelArgs&) {
    if (node == "gemm2/grad" && run == 2) release.wait();
  });
  d.step(0);
  EXPECT_EQ(thrown<RankStopped>([&] { d.step(1); }),
            "rank 3 (devices/gpu-3) stopped in step 2 before all_reduce_0/start: it has not "
            "continued within 2.4 s, and the other ranks are waiting for it");
  release.count_down();  // the abandoned thread of the stopped rank then ends
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(Ranks, AStopAfterTheLastExchangeIsNamed) {
  std::latch release(1);
  Disturbance d(2, [&](const std::string& node, int run, const KernelArgs&) {
    if (node == "gemm2.bias/update" && run == 1) release.wait();
  });
  const std::string text = thrown<RankStopped>([&] { d.step(0); });
  EXPECT_NE(text.find("rank 1 (devices/gpu-1) stopped in step 1 after all_reduce_0/start"),
            std::string::npos)
      << text;
  release.count_down();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// With a split head, ranks also wait for each other in evaluations, which do not count as steps.
TEST(Ranks, AStopInAnEvaluationIsNamed) {
  std::latch release(1);
  std::atomic<bool> stalls = false;
  const auto hook = [&](const std::string& node, int, const KernelArgs&) {
    if (stalls && node == "gemm2/gather") release.wait();
  };
  Disturbance d(2, hook, Shard::kHead);
  const auto evaluate = [&] {
    const std::vector<float> rows(static_cast<size_t>(d.session->evaluation_batch() * 64), 0.5f);
    d.session->evaluate(std::as_bytes(std::span(rows)));
  };
  d.step(0);
  evaluate();
  EXPECT_EQ(d.session->evaluation_output(0).size(), 3u);
  d.step(1);
  stalls = true;
  EXPECT_EQ(thrown<RankStopped>(evaluate),
            "rank 1 (devices/gpu-1) stopped in an evaluation after step 2: it has not continued "
            "within 2.4 s, and the other ranks are waiting for it");
  release.count_down();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(Ranks, AStopAfterAnEvaluationNamesItsStep) {
  std::latch release(1);
  const auto hook = [&](const std::string& node, int run, const KernelArgs&) {
    if (node == "gemm2/grad" && run == 2) release.wait();
  };
  Disturbance d(2, hook, Shard::kHead);
  const std::vector<float> rows(static_cast<size_t>(d.session->evaluation_batch() * 64), 0.5f);
  d.step(0);
  d.session->evaluate(std::as_bytes(std::span(rows)));
  EXPECT_EQ(thrown<RankStopped>([&] { d.step(1); }),
            "rank 1 (devices/gpu-1) stopped in step 2 before gemm2/gather/grad: it has not "
            "continued within 2.4 s, and the other ranks are waiting for it");
  release.count_down();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// Exit handlers and destructors of a GPU's libraries would wait for the stopped rank.
TEST(RanksDeathTest, AStoppedRankDoesNotKeepTheProcess) {
  const auto stop_one = [] {
    std::atexit([] { std::_Exit(9); });
    RankTeam team(2);
    const auto failure = team.run(
        [](size_t r) {
          if (r == 1) std::latch(1).wait();
        },
        0.05, [] { return std::nullopt; });
    if (!failure.has_value()) std::_Exit(1);
    team.end([](size_t) { std::_Exit(2); }, 0.05);  // the last task needs all ranks
    std::exit(7);
  };
  EXPECT_EXIT(stop_one(), ::testing::ExitedWithCode(7), "");
}

TEST(Ranks, F32AFaultOfOneEndsAll) {
  Disturbance d(4, [](const std::string& node, int run, const KernelArgs&) {
    if (node == "gemm1/grad" && run == 2) {
      throw CudaError("a kernel failed (error 700)", 700, CudaFault::kProgram);
    }
  });
  d.step(0);
  try {
    d.step(1);
    FAIL() << "the fault is lost";
  } catch (const CudaError& e) {
    EXPECT_STREQ(e.what(), "rank 3 (devices/gpu-3): a kernel failed (error 700)");
    EXPECT_EQ(e.code(), 700);
    EXPECT_EQ(e.fault(), CudaFault::kProgram);
  }
}

TEST(Ranks, AFaultOfAnotherKindKeepsItsType) {
  Disturbance d(2, [](const std::string& node, int run, const KernelArgs&) {
    if (node == "gemm1/grad" && run == 2) throw NumericsError("a NaN");
  });
  d.step(0);
  EXPECT_EQ(thrown<NumericsError>([&] { d.step(1); }), "a NaN");
}

/// Flips the lowest bit of a weight on the last rank, before its second update.
void flip_a_bit(const std::string& node, int run, const KernelArgs& args) {
  if (node != "gemm1.weight/update" || run != 2) return;
  *args.mut<uint8_t>(0) ^= 1;
}

TEST(Ranks, F34AFlippedBitOnOneRankIsFoundBeforeTheCheckpoint) {
  Disturbance d(4, flip_a_bit);
  d.step(0);
  d.session->check_replicas(1);
  d.step(1);
  const std::string text = thrown<RanksDiffer>([&] { d.session->check_replicas(2); });
  EXPECT_EQ(text,
            "rank 3 (devices/gpu-3) has other values of gemm1.weight than most of the others "
            "after step 2: a device, its memory or a link has changed bits without an error");
}

TEST(Ranks, F34OfTwoDifferingRanksNeitherIsBlamed) {
  Disturbance d(2, flip_a_bit);
  d.step(0);
  d.step(1);
  const std::string text = thrown<RanksDiffer>([&] { d.session->check_replicas(2); });
  EXPECT_TRUE(text.starts_with("rank 1 (devices/gpu-1) or rank 0 (devices/gpu-0) has")) << text;
}

TEST(Ranks, F34ARunWhoseRanksDifferEndsAsADeviceFaultAndItsLastCheckpointIsGood) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob whole = plain_job(w, "whole");
  Recorder rw;
  run(whole, 2, rw);

  TrainJob job = plain_job(w, "job");
  job.recipe.checkpoint_every_steps = 7;
  const auto flip = [](const std::string& node, int run, const KernelArgs& args) {
    if (node == "gemm1.weight/update" && run == 10) *args.mut<uint8_t>(0) ^= 1;
  };
  const auto devices = connected(
      {std::make_shared<DisturbedBackend>(flip),
       std::make_shared<DisturbedBackend>([](const std::string&, int, const KernelArgs&) {})});
  Recorder first;
  const std::string text =
      thrown<CudaError>([&] { (void)train(job, devices, local_files(), first, {}); });
  EXPECT_NE(text.find("gemm1.weight than it should after step 14"), std::string::npos) << text;
  Recorder second;
  run(job, 2, second);
  EXPECT_EQ(second.plan.first_step, 7);
  EXPECT_EQ(weights_of(job), weights_of(whole));
}

// Runs each rank directly, so that all their weights can be compared.
TEST(Ranks, HoldTheSameWeights) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = plain_job(w, "a");
  job.recipe.optimizer = default_optimizer("muon");
  job.recipe.optimizer.learning_rate = 0.01;
  const DatasetSchema schema = read_schema(job.dataset).value();
  constexpr int64_t kRanks = 4;
  const RunShape shape = check_recipe(job.recipe, job.model, schema, kRanks).value();
  const std::vector<RankDevice> devices = cpu_devices(kRanks);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int64_t r = 0; r < kRanks; ++r) {
    sessions.push_back(
        std::make_unique<Session>(compile_run(job.model, job.recipe, schema, shape, r).value(),
                                  *devices[static_cast<size_t>(r)].backend, 1, Rank{r, kRanks}));
    sessions.back()->initialize(3);
  }
  std::vector<float> input(16 * 64);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(std::sin(i));
  const std::vector<int32_t> target = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
  std::vector<std::thread> threads;
  for (auto& session : sessions) {
    threads.emplace_back([&] {
      for (int64_t step = 0; step < 5; ++step) {
        session->run_step(
            {std::as_bytes(std::span(input)), std::as_bytes(std::span(target)), step, 0.01f});
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const Snapshot first = sessions.front()->snapshot();
  for (size_t r = 1; r < sessions.size(); ++r) {
    EXPECT_EQ(sessions[r]->snapshot().storage, first.storage) << "rank " << r;
  }
}

// Buckets of a few bytes: they start in order, at most four are in flight at a time, and each is
// reduced in the memory of its gradients.
TEST(Ranks, BucketsOverlapTheBackwardPassInPlace) {
  Graph g;
  const auto parameter = [&](const std::string& name) {
    return g.add_tensor(
        {name, {{8, 8}, DType::kF32}, Role::kParameter, Layout::kRowMajor, kNoNode, {}});
  };
  std::map<TensorId, TensorId> gradients;
  TensorId x =
      g.add_tensor({"x", {{8, 8}, DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
  constexpr int kLayers = 9;
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "p" + std::to_string(i);
    const TensorId p = parameter(name);
    x = g.node(g.add_node(name + "/y", get_op("Relu"), {}, {x}, {name + "/y"}).value()).outputs[0];
    const NodeId grad =
        g.add_node(name + "/grad", get_op("Add"), {}, {x, p}, {name + ".grad"}, Phase::kBackward)
            .value();
    gradients[p] = g.node(grad).outputs[0];
    g.set_role(gradients[p], Role::kGradient);
  }
  const BucketSpec spec{.first_bytes = 256, .bytes = 512, .in_flight = 2};
  const auto mean = append_all_reduce(g, gradients, spec);
  const TensorId rate =
      g.add_tensor({"rate", {{1}, DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
  for (const auto& [p, gradient] : mean) {
    g.add_node(g.tensor(p).name + "/update", get_op("SgdUpdate"), {},
               {p, gradient, rate, kNoTensor}, {}, Phase::kUpdate)
        .value();
  }
  const Program program = compile(std::move(g), {});
  verify(program);
  std::vector<std::string> order;
  for (const NodeId k : program.order) {
    const std::string& name = program.graph.node(k).name;
    if (name.starts_with("all_reduce")) order.push_back(name);
  }
  // The gradients have 256 bytes each: one gradient in the first bucket, then two each.
  EXPECT_EQ(order, (std::vector<std::string>{"all_reduce_0/start", "all_reduce_1/start",
                                             "all_reduce_2/start", "all_reduce_0/done",
                                             "all_reduce_3/start", "all_reduce_1/done",
                                             "all_reduce_4/start", "all_reduce_2/done",
                                             "all_reduce_3/done", "all_reduce_4/done"}));
  for (const auto& [p, gradient] : gradients) {
    const auto offset = [&](TensorId id) {
      return program.placements[static_cast<size_t>(id)].offset_bytes;
    };
    EXPECT_EQ(offset(gradient), offset(mean.at(p))) << program.graph.tensor(p).name;
  }
}

TEST(Ranks, RefusalsNameTheFieldAndWhatIsAccepted) {
  const auto refusal = [](std::vector<std::string> devices) {
    const Status s = check_devices(devices, "--device");
    return s.ok() ? "" : s.error().message;
  };
  EXPECT_EQ(refusal({"devices/cpu"}), "");
  EXPECT_EQ(refusal({"devices/gpu-1", "devices/gpu-0"}), "");
  EXPECT_EQ(refusal({"devices/gpu-0", "devices/gpu-0"}),
            "--device: 'devices/gpu-0' is named twice, expected one device, or up to 64 different "
            "GPUs");
  EXPECT_EQ(refusal({"devices/gpu-0", "devices/cpu"}),
            "--device: 'devices/cpu' cannot share a job with other devices, expected one device, "
            "or up to 64 different GPUs");
  EXPECT_EQ(refusal({}),
            "--device: no device is given, expected one device, or up to 64 "
            "different GPUs");

  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = plain_job(w, "a");
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto of_ranks = [&](int64_t ranks) {
    const auto plan = plan_run(job.model, job.recipe, schema, ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(of_ranks(3),
            "resources.gpus: 3 does not divide recipe.batch_size 16, expected one of 1, 2, 4, 8, "
            "16");
  EXPECT_EQ(of_ranks(65), "resources.gpus: 65 is out of range, expected 1..64");
  job.recipe.accumulate_steps = 4;
  EXPECT_EQ(of_ranks(8),
            "resources.gpus: 8 does not divide the 4 rows of a micro-batch (recipe.batch_size "
            "over recipe.accumulate_steps), expected one of 1, 2, 4");
  EXPECT_EQ(of_ranks(4), "");
}

TEST(Ranks, EachNeedsLessMemoryThanOneDevice) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = plain_job(w, "a");
  job.recipe.validation_split = 0;  // an evaluation would need the same on any number of ranks
  job.recipe.evaluate_every_steps = 0;
  const DatasetSchema schema = read_schema(job.dataset).value();
  const RunPlan one = plan_run(job.model, job.recipe, schema).value();
  const RunPlan four = plan_run(job.model, job.recipe, schema, 4).value();
  EXPECT_LT(four.memory.activation_bytes, one.memory.activation_bytes / 2);
  EXPECT_EQ(four.memory.parameter_bytes, one.memory.parameter_bytes);
  EXPECT_EQ(four.memory.optimizer_bytes, one.memory.optimizer_bytes);
  EXPECT_GE(four.flops_per_step, one.flops_per_step);  // each rank updates all weights
  EXPECT_LT(four.flops_per_step, one.flops_per_step * 5 / 4);
}

}  // namespace
}  // namespace trainyard
