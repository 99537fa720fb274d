// Tests of forecasts: measured rates give the time of work that was not measured itself, and the
// parts of a job's time are right.
#include "src/forecast/forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "src/job/recipe.h"
#include "src/job/run_clock.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"

namespace trainyard {
namespace {

// A device whose times follow a law that the rate model must recover: the terms are the start of a
// node, arithmetic, and memory.
constexpr double kBegin = 2e-6, kFlops = 5e10, kBytes = 2e10, kMemoryBytes = 5e9;
double law(const NodeWorkload& w) {
  return kBegin + w.flops / kFlops + w.bytes / kBytes + w.memory_bytes / kMemoryBytes;
}

NodeWorkload node(const std::string& op, double flops, double bytes, double memory_bytes = 0) {
  NodeWorkload w;
  w.op = op;
  w.flops = flops;
  w.bytes = bytes;
  w.memory_bytes = memory_bytes;
  return w;
}

NodeWorkload product(const std::string& op, double m, double n, double k) {
  NodeWorkload w = node(op, 2 * m * n * k, 4 * (m * n + m * k + n * k));
  w.m = m;
  w.n = n;
  w.k = k;
  return w;
}

/// Returns rates from samples that follow law(); `slower` multiplies all times.
DeviceRates rates_by_law(double slower = 1) {
  DeviceRates rates;
  const auto add = [&](NodeWorkload w) {
    const double seconds = slower * law(w);
    rates.samples.push_back({std::move(w), seconds});
  };
  for (const double size : {16.0, 64.0, 256.0, 1024.0}) {
    for (const char* op : {"Gemm", "GemmGrad", "GemmGrad/no_dx"}) {
      for (const double k : {32.0, 512.0}) add(product(op, size, 128, k));
      add(product(op, 64, size, 256));
    }
    for (const char* op : {"Relu", "ReluGrad", "SgdUpdate", "SoftmaxCrossEntropyLoss",
                           "SoftmaxCrossEntropyLossGrad", "ConstantOfShape"}) {
      add(node(op, size * 100, size * 1000));
      add(node(op, size * 1e4, size * 1e5, size * 1e5));
      add(node(op, size * 3e4, size * 1e4));
    }
    add(node(std::string(kStepOp), 0, size * 100));
    add(node(std::string(kTableRowOp), 0, size));
  }
  rates.prepare_seconds = slower * 1e-3;
  rates.process_seconds = slower * 0.1;
  rates.watts = 250;
  rates.measure_seconds = 1;
  return rates;
}

RunPlan plan_of(int64_t batch, double learning_rate = 0.01) {
  DatasetSchema schema;
  schema.columns.resize(300);
  schema.target.classes = {"a", "b", "c"};
  schema.train_rows = 10'000;
  schema.test_rows = 100;
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", std::vector<int64_t>{500, 200});
  Recipe recipe;
  recipe.epochs = 2;
  recipe.batch_size = batch;
  recipe.validation_split = 0.1;
  recipe.optimizer.learning_rate = learning_rate;
  return plan_run(model, recipe, schema).value();
}

TEST(Rates, FitTheUnderlyingLaw) {
  const RateModel rates(rates_by_law());
  for (const NodeWorkload& w : {product("Gemm", 100, 100, 100), product("GemmGrad", 700, 300, 400),
                                node("Relu", 5e5, 5e6), node("SgdUpdate", 3e6, 3e7, 3e7)}) {
    const std::optional<NodeTime> time = rates.time(w);
    ASSERT_TRUE(time.has_value()) << w.op;
    EXPECT_NEAR(time->seconds / law(w), 1, 0.05) << w.op;
  }
  EXPECT_GT(rates.time(node("SgdUpdate", 3e6, 3e7, 3e7))->memory, 1e-3);
  EXPECT_NEAR(rates.bytes_per_second(), 1 / (1 / kMemoryBytes + 1 / kBytes + 0.1 / kFlops), 2e8);
}

// A reshape only renames its operand's memory, and a GPU runs all updates as one node.
TEST(StepWork, ViewsAreFreeAndAGpuMergesUpdates) {
  ModelSpec model;
  model.preset = "gpt2";
  for (const auto& [name, value] : {std::pair("n_layer", 2), {"n_embd", 16}, {"n_head", 2}}) {
    model.parameters.set(name, int64_t{value});
  }
  Recipe recipe;
  recipe.steps = 1;
  recipe.batch_size = 2;
  const ModelInterface tokens{{8}, 11, TargetForm::kNextToken, 11};
  const auto count = [](const StepWork& work, std::string_view op) {
    double sum = 0;
    for (const WorkItem& item : work.items) sum += item.node.op == op ? item.count : 0;
    return sum;
  };
  const auto work_on = [&](Processor processor) {
    const RunPrograms programs =
        compile_step(model, recipe, tokens, {}, {kHostAlignment, processor}).value();
    return step_work({{&programs.train.program, 1}}, 0, processor);
  };
  const StepWork cpu = work_on(Processor::kCpu), gpu = work_on(Processor::kGpu);
  EXPECT_GT(count(cpu, kViewOp), 0);
  EXPECT_EQ(count(cpu, "Reshape"), 0);
  EXPECT_GT(count(cpu, "SgdUpdate"), 4 * count(gpu, "SgdUpdate"));
  const DeviceRates rates = rates_by_law();
  StepWork views;
  views.items = {{node("Relu", 1e4, 1e5), 1}};
  const double one = forecast_step(views, RateModel(rates))->time.seconds;
  views.items.push_back({node(std::string(kViewOp), 0, 0), 1000});
  EXPECT_EQ(forecast_step(views, RateModel(rates))->time.seconds, one);
}

TEST(Rates, AnOpThatOnlyMovesBytesStandsInForOthers) {
  const RateModel rates(rates_by_law());
  const std::optional<NodeTime> pad = rates.time(node("Pad", 0, 1e6));
  ASSERT_TRUE(pad.has_value());
  // The other ops also compute a little, which the fit counts as time for moving bytes.
  EXPECT_NEAR(std::log2(pad->seconds / law(node("Pad", 0, 1e6))), 0, 1);
  EXPECT_FALSE(rates.time(product("Conv", 64, 64, 64)).has_value());
  EXPECT_FALSE(rates.time(node("Attention", 1e9, 1e6)).has_value());
  EXPECT_FALSE(RateModel(DeviceRates()).time(node("Pad", 0, 1e6)).has_value());
}

// The fit may attribute all of an op's time to its far bytes; a node of that op without any must
// still take some time.
TEST(Rates, ANodeWithoutFittedRatesUsesThoseOfOtherOps) {
  // A Flatten that is not a view is a copy like any other.
  for (const char* op : {"Gather", "FlattenGrad"}) {
    DeviceRates measured = rates_by_law();
    // These times grow faster than the bytes, so that nothing is left for the start of a node.
    for (const auto& [far, seconds] : {std::pair(1e4, 1e-6), {1e5, 5e-5}, {1e6, 1e-3}}) {
      NodeWorkload moved = node(op, 0, 1);
      moved.far_bytes = far;
      measured.samples.push_back({moved, seconds});
    }
    const RateModel rates(measured);
    const std::optional<NodeTime> near = rates.time(node(op, 0, 0));
    ASSERT_TRUE(near.has_value()) << op;
    EXPECT_GT(near->seconds, 0) << op;
  }
}

TEST(Rates, RoundTrip) {
  const DeviceRates rates = rates_by_law();
  const Result<DeviceRates> again = parse_rates(to_json_text(rates));
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_EQ(again->samples.size(), rates.samples.size());
  for (size_t i = 0; i < rates.samples.size(); ++i) {
    EXPECT_EQ(again->samples[i].node, rates.samples[i].node);
    EXPECT_EQ(again->samples[i].seconds, rates.samples[i].seconds);
  }
  EXPECT_EQ(again->process_seconds, rates.process_seconds);
  EXPECT_EQ(again->watts, rates.watts);
  const std::string head =
      R"({"prepare_seconds":0,"process_seconds":0,"measure_seconds":0,"watts":0,)";
  for (
      const std::string& bad :
      {std::string("[]"), std::string("{"), head + R"("samples":[["Gemm",1]]})",
       head + R"("samples":[["Gemm",1,1,1,1,0,0,0,1,-1]]})",
       head + R"("samples":[["Gemm",1,1,1,1,0,0,0,0,1]]})",
       std::string(
           R"({"prepare_seconds":-1,"process_seconds":0,"measure_seconds":0,"watts":0,"samples":[]})"),
       std::string(
           R"({"prepare_seconds":0,"process_seconds":0,"measure_seconds":0,"samples":[]})")}) {
    const Result<DeviceRates> refused = parse_rates(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().reason, "RATES_INVALID");
  }
}

TEST(Forecast, ALargerBatchTakesLonger) {
  const RateModel rates(rates_by_law());
  double before = 0;
  for (const int64_t batch : {1, 2, 8, 32, 100, 128, 512, 1000, 4000}) {
    const Result<StepForecast> step = forecast_step(plan_of(batch).work.step, rates);
    ASSERT_TRUE(step.ok()) << step.error().message;
    EXPECT_GT(step->time.seconds, before) << batch;
    EXPECT_LT(step->time.low, step->time.seconds);
    EXPECT_GT(step->time.high, step->time.seconds);
    before = step->time.seconds;
  }
}

TEST(Forecast, ADeviceOfHalfTheSpeedTakesTwiceAsLong) {
  const RunWork work = plan_of(64).work;
  const RunForecast fast = forecast_run(work, RateModel(rates_by_law(1))).value();
  const RunForecast slow = forecast_run(work, RateModel(rates_by_law(2))).value();
  EXPECT_NEAR(slow.step.seconds / fast.step.seconds, 2, 1e-3);
  EXPECT_NEAR(slow.total.seconds / fast.total.seconds, 2, 1e-3);
  EXPECT_NEAR(slow.rows_per_second_needed / fast.rows_per_second_needed, 0.5, 1e-3);
}

TEST(Forecast, IsTheSumOfTheStepsNodes) {
  const StepWork work = plan_of(64).work.step;
  double expected = law(node("", 0, work.input_bytes));
  for (const WorkItem& item : work.items) expected += item.count * law(item.node);
  const StepForecast step = forecast_step(work, RateModel(rates_by_law())).value();
  EXPECT_NEAR(step.time.seconds / expected, 1, 0.1);
}

TEST(Forecast, UnknownRatesGiveNone) {
  DeviceRates rates = rates_by_law();
  std::erase_if(rates.samples, [](const RateSample& s) { return s.node.op == "GemmGrad"; });
  const auto step = forecast_step(plan_of(64).work.step, RateModel(rates));
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().reason, "RATE_UNKNOWN");
  EXPECT_NE(step.error().message.find("GemmGrad"), std::string::npos);
  EXPECT_FALSE(forecast_run(plan_of(64).work, RateModel(DeviceRates())).ok());
}

TEST(Forecast, OfARunHasEvaluationsAndTheStart) {
  const RunWork work = plan_of(100).work;
  EXPECT_EQ(work.steps, 180);  // 9,000 rows, two epochs
  EXPECT_EQ(work.evaluations, 2);
  EXPECT_GT(work.evaluation_batches, 0);
  EXPECT_GT(work.last_evaluation_batches, 0);
  const RateModel rates(rates_by_law());
  const RunForecast run = forecast_run(work, rates).value();
  const double evaluation = forecast_step(work.evaluation, rates)->time.seconds;
  const double batches =
      static_cast<double>(2 * work.evaluation_batches + work.last_evaluation_batches);
  const double start = 0.1 + 1e-3 * static_cast<double>(work.nodes);
  EXPECT_NEAR(run.total.seconds, 180 * run.step.seconds + batches * evaluation + start,
              0.02 * run.total.seconds);
  EXPECT_GT(run.total.high, run.total.seconds);
}

TEST(Forecast, TheBoundOfAStepIsWhatItsNodesTakeAtTheDevicesBestRates) {
  DeviceRates rates;
  rates.samples = {{product("Gemm", 512, 512, 512), 1e-2},     // 26.8 GFLOP/s
                   {product("Gemm", 16, 16, 16), 1e-5},        // slower, so not the best rate
                   {node("SgdUpdate", 1e3, 2e6, 1e6), 1e-3}};  // 1 GB/s
  const RateModel model(rates);
  StepWork work;
  NodeWorkload computes = product("Gemm", 1024, 512, 512);
  computes.memory_bytes = 1e6;  // overlaps the arithmetic
  work.items = {{computes, 2}, {node("Relu", 100, 4e6), 1}, {node("SgdUpdate", 1e3, 4e7, 2e7), 1}};
  const StepBound bound = bound_step(work, model);
  EXPECT_NEAR(bound.seconds, 2 * 2e-2 + 2e-2, 1e-4) << "bytes in a cache are not in it";
  EXPECT_EQ(bound.by, Limit::kCompute);
  work.items[0].count = 0.5;
  EXPECT_EQ(bound_step(work, model).by, Limit::kMemory);

  rates.samples.pop_back();
  EXPECT_EQ(bound_step(work, RateModel(rates)).seconds, 0) << "no bandwidth is known";

  const RunWork run = plan_of(100).work;
  const RateModel by_law(rates_by_law());
  const RunForecast forecast = forecast_run(run, by_law).value();
  EXPECT_GT(forecast.bound.seconds, 0);
  EXPECT_LT(forecast.bound.seconds, forecast.step.seconds);
}

/// Returns a step on several linked devices; without the link it takes a second.
StepWork linked(Processor processor, LinkWork beside, LinkWork alone) {
  StepWork work;
  work.processor = processor;
  work.items = {{node("Relu", 1e9, 1e10), 1}};
  work.sent_overlapped = beside;
  work.sent_exposed = alone;
  return work;
}

TEST(Forecast, HalfOfTheComputationHidesTheExchangeOfGpus) {
  const RateModel rates(rates_by_law());
  const auto step = [&](LinkWork beside, LinkWork alone) {
    return forecast_step(linked(Processor::kGpu, beside, alone), rates).value();
  };
  const StepForecast computing = step({}, {});
  const double s = computing.time.seconds;
  const double per_second = kAssumedLink.bytes_per_second;
  EXPECT_NE(computing.limited_by, Limit::kExchanges);
  const auto likely = [&](LinkWork beside, LinkWork alone) {
    return step(beside, alone).time.seconds - s;
  };
  EXPECT_NEAR(likely({0, 0.4 * s * per_second}, {}), 0, 1e-9) << "all of it is hidden";
  EXPECT_NEAR(likely({0, 0.7 * s * per_second}, {}), 0.2 * s, 1e-9);
  EXPECT_NEAR(likely({}, {0, 0.1 * s * per_second}), 0.1 * s, 1e-9) << "the step waits for it";
  EXPECT_NEAR(likely({}, {1000, 0}), 1000 * kAssumedLink.seconds_per_exchange, 1e-9);
  EXPECT_EQ(step({}, {0, 2 * s * per_second}).limited_by, Limit::kExchanges);

  // The range goes from the fastest assumed link, to the slowest with nothing overlapped.
  const TimeRange range = step({0, 0.4 * s * per_second}, {}).time;
  EXPECT_NEAR(range.low, computing.time.low, 1e-9);
  EXPECT_NEAR(range.high - computing.time.high,
              0.4 * s * per_second / kAssumedLink.bytes_per_second_least, 1e-6);
}

// Ranks on different nodes cannot read each other's memory, and neither can CPUs.
TEST(Forecast, NodesSendOverAnAssumedNetwork) {
  const RateModel rates(rates_by_law());
  for (const auto& [processor, network] : {std::pair(Processor::kGpu, kAssumedGpuNetwork),
                                           std::pair(Processor::kCpu, kAssumedCpuNetwork)}) {
    StepWork work = linked(processor, {}, {2, 1e12});
    work.over_network = true;
    const TimeRange alone = forecast_step(linked(processor, {}, {}), rates)->time;
    const StepForecast sent = forecast_step(work, rates).value();
    const double waits = 2 * network.seconds_per_exchange;
    EXPECT_NEAR(sent.time.seconds - alone.seconds, 1e12 / network.bytes_per_second + waits, 1e-6);
    EXPECT_NEAR(sent.time.low - alone.low, 1e12 / network.bytes_per_second_most + waits, 1e-6);
    EXPECT_NEAR(sent.time.high - alone.high, 1e12 / network.bytes_per_second_least + waits, 1e-6);
    EXPECT_EQ(sent.limited_by, Limit::kExchanges);
    work.over_network = false;
    EXPECT_LT(forecast_step(work, rates)->time.seconds, sent.time.seconds);
  }
}

TEST(Forecast, AnAssumptionIsStatedWhereTheForecastUsesIt) {
  const StepWork gpus = linked(Processor::kGpu, {1, 1e6}, {});
  EXPECT_EQ(assumed_link(gpus),
            "the link between its GPUs is not measured: 20 GB/s are assumed, 8 to 300 in the "
            "ranges");
  EXPECT_EQ(assumed_link(linked(Processor::kGpu, {}, {})), "");
  StepWork nodes = gpus;
  nodes.over_network = true;
  EXPECT_EQ(assumed_link(nodes),
            "the network between its nodes is not measured: 5 GB/s are assumed, 1.25 to 50 in the "
            "ranges");
  nodes.processor = Processor::kCpu;
  EXPECT_EQ(assumed_link(nodes),
            "the network between its nodes is not measured: 0.3 GB/s are assumed, 0.1 to 1.2 in "
            "the ranges");
  const StepWork cpu = linked(Processor::kCpu, {1, 1e12}, {1, 1e12});
  EXPECT_EQ(assumed_link(cpu), "") << "ranks on a CPU read each other's memory";
  const RateModel rates(rates_by_law());
  EXPECT_EQ(forecast_step(cpu, rates)->time.seconds,
            forecast_step(linked(Processor::kCpu, {}, {}), rates)->time.seconds);
}

/// Returns the number of exchanges in a step, and how many of them overlap computation.
std::pair<double, double> exchanges_of(Shard shard, int64_t accumulate_steps) {
  DatasetSchema schema;
  schema.columns.resize(500);
  for (int i = 0; i < 5000; ++i) schema.target.classes.push_back(std::to_string(i));
  schema.train_rows = 1000;
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", std::vector<int64_t>(4, 4096));  // 80 M parameters in 13 buckets
  Recipe recipe;
  recipe.epochs = 1;
  recipe.batch_size = 8;
  recipe.optimizer = default_optimizer("adam");
  recipe.shard = shard;
  recipe.accumulate_steps = accumulate_steps;
  const RunPlan plan = plan_run(model, recipe, schema, 2).value();
  double sent = 0, planned = 0;
  for (const PlannedExchange& e : plan.exchanges) {
    sent += static_cast<double>(e.sent_bytes);
    planned += static_cast<double>(e.count);
  }
  const StepWork& step = plan.work.step;
  EXPECT_NEAR((step.sent_overlapped.bytes + step.sent_exposed.bytes) / sent, 1, 1e-9);
  EXPECT_EQ(step.sent_overlapped.exchanges + step.sent_exposed.exchanges, planned);
  return {planned, step.sent_overlapped.exchanges};
}

TEST(RunWork, AllButTheLastExchangeOverlapTheBackwardPass) {
  const auto [whole, beside] = exchanges_of(Shard::kNone, 1);
  ASSERT_GT(whole, 2);
  EXPECT_EQ(beside, whole - 1);
  const auto [scattered, beside_scattered] = exchanges_of(Shard::kOptimizer, 1);
  EXPECT_EQ(beside_scattered, scattered - 2) << "scattered and gathered";
  EXPECT_EQ(exchanges_of(Shard::kNone, 2).second, 0) << "they are summed first";
  const auto [split, beside_split] = exchanges_of(Shard::kHead, 1);
  EXPECT_LE(beside_split, split - 4) << "rows, labels, sums and the rows' gradient";
}

TEST(RunWork, IncludesTheExchangeOfEvaluations) {
  DatasetSchema schema;
  schema.columns.resize(20);
  for (int i = 0; i < 100; ++i) schema.target.classes.push_back(std::to_string(i));
  schema.train_rows = schema.test_rows = 1000;
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", std::vector<int64_t>(2, 64));
  Recipe recipe;
  recipe.epochs = 1;
  recipe.batch_size = 8;
  recipe.optimizer = default_optimizer("adam");
  const auto sent = [&](Shard shard) {
    recipe.shard = shard;
    return plan_run(model, recipe, schema, 2).value().work.evaluation;
  };
  const StepWork none = sent(Shard::kNone);
  EXPECT_EQ(none.sent_overlapped.exchanges + none.sent_exposed.exchanges, 0)
      << "each has its own rows";
  // The head's ranks exchange the outputs of the layer below the head, for as many rows as the
  // input has.
  const StepWork head = sent(Shard::kHead);
  EXPECT_EQ(head.sent_overlapped.exchanges, 0);
  EXPECT_EQ(head.sent_exposed.exchanges, 1);
  EXPECT_EQ(head.sent_exposed.bytes, head.input_bytes / 20 * 64);
  // Each rank receives half of all weights and biases.
  const StepWork gathered = sent(Shard::kParameters);
  const double weights = 20 * 64 + 64 + 64 * 64 + 64 + 64 * 100 + 100;
  EXPECT_EQ(gathered.sent_overlapped.bytes + gathered.sent_exposed.bytes,
            weights * sizeof(float) / 2);
}

TEST(Forecast, AMeasuredTimeReplacesTheForecast) {
  const RunWork work = plan_of(100).work;
  const MeasuredSteps measured{{0.5, 0.4, 0.6}, 3};
  const RunForecast run = forecast_run(work, RateModel(rates_by_law()), measured).value();
  EXPECT_EQ(run.step.seconds, 0.5);
  EXPECT_GT(run.total.low, 180 * 0.4);
  EXPECT_GT(run.total.seconds, 180 * 0.5);
}

TEST(Forecast, ALoaderThatIsSlowerLimitsTheStep) {
  DeviceRates rates = rates_by_law();
  for (RateSample& s : rates.samples) {
    if (s.node.op == kTableRowOp) s.seconds = 1;
  }
  const RunWork work = plan_of(100).work;
  ASSERT_EQ(work.row.kind, kTableRowOp);
  const RunForecast run = forecast_run(work, RateModel(rates)).value();
  EXPECT_EQ(run.limited_by, Limit::kData);
  EXPECT_NEAR(run.step.seconds, 100, 20);
  EXPECT_NEAR(run.rows_per_second_possible, 1, 0.2);
  EXPECT_GT(run.rows_per_second_needed, 1000);
}

TEST(StepWork, ItsDigestDependsOnTheComputation) {
  const std::string digest = plan_of(64).work.step.digest;
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(plan_of(64, 0.5).work.step.digest, digest);
  EXPECT_NE(plan_of(65).work.step.digest, digest);
}

TEST(StepWork, BytesCountAsUncachedAfterMuchOtherTraffic) {
  const auto far = [](int64_t batch) {
    double bytes = 0, far_bytes = 0;
    for (const WorkItem& item : plan_of(batch).work.step.items) {
      bytes += item.count * item.node.bytes;
      far_bytes += item.count * item.node.memory_bytes;
    }
    return far_bytes / bytes;
  };
  EXPECT_LT(far(1), 0.05);    // 1 MB of weights
  EXPECT_GT(far(8000), 0.3);  // activations of 16 MB
}

TEST(RunClock, ExcludesFirstStepsAndPauses) {
  RunClock clock;
  clock.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  clock.steps_done(4);  // the first submission
  EXPECT_EQ(clock.times().steps, 0);
  clock.steps_done(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.evaluation_done();
  clock.steps_done(2);
  clock.steps_done(0);
  const RunTimes times = clock.times();
  EXPECT_EQ(times.steps, 6);
  EXPECT_EQ(times.evaluations, 1);
  EXPECT_GE(times.evaluations_seconds, 0.02);
  EXPECT_LT(times.step_seconds, 0.02);
  EXPECT_LE(times.step_seconds_low, times.step_seconds);
  EXPECT_LE(times.step_seconds, times.step_seconds_high);
}

}  // namespace
}  // namespace trainyard
