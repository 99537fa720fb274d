// Tests of the measured speeds of cluster nodes: which worker measures when, which results are
// accepted, and the run times forecast from them.
#include "server/forecast/cluster_rates.h"

#include <gtest/gtest.h>

#include "server/store/wait_for.h"
#include "src/forecast/rates.h"
#include "tests/server/forecast_samples.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

/// Returns the rates of a node on which every product takes `seconds`.
DeviceRates rates_of(double seconds) {
  DeviceRates rates = product_rates(seconds);
  rates.process_seconds = 1;
  return rates;
}

std::shared_ptr<const RunWork> work_of(int64_t steps) {
  return std::make_shared<RunWork>(work_of_products(steps));
}

NodeUse use_of(const std::string& task, const std::string& cpu = "Fast CPU", int32_t threads = 2) {
  NodeUse use;
  use.task = task;
  use.cluster = "slurm";
  use.threads = threads;
  use.precision = v1::Recipe::TF32;
  use.facts.set_cpu_model(cpu);
  use.facts.set_cores(8);
  use.facts.set_cores_given(8);
  use.facts.set_memory_bytes(int64_t{64} << 30);
  use.facts.set_build("b1");
  return use;
}

ClusterQuery query_of(int64_t steps = 100, int32_t threads = 2) {
  ClusterQuery query;
  query.cluster = "slurm";
  query.work = work_of(steps);
  query.threads = threads;
  query.precision = v1::Recipe::TF32;
  query.plan_bytes = 5000;
  query.key = std::to_string(steps) + "/" + std::to_string(threads);
  return query;
}

class ClusterRatesTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  ClusterConfig config = [] {
    ClusterConfig cluster;
    cluster.name = "slurm";
    cluster.cpus = 2;
    return cluster;
  }();

  /// Opens ClusterRates on the store after all earlier writes to the store are done.
  std::unique_ptr<ClusterRates> open() {
    EXPECT_TRUE(answer_of(store->forecasts(), &ForecastStore::save_rates,
                          StoredRates{{"any", 1, v1::Recipe::FP32}, 1, "{}"})
                    .ok());
    auto rates =
        std::make_unique<ClusterRates>(*store, std::vector{config}, ClusterRatesOptions{}, clock);
    EXPECT_TRUE(rates->open().ok());
    return rates;
  }
  /// Reports that a job has ended on the node and that its worker measured `seconds` per product.
  static void measure(ClusterRates& rates, const NodeUse& use, double seconds) {
    ASSERT_TRUE(rates.job_ended(use)) << use.task;
    const Status taken = rates.take(use.task, to_json_text(rates_of(seconds)));
    ASSERT_TRUE(taken.ok()) << taken.error().message;
    rates.worker_gone(use.task);
  }
  /// Stores a finished job with a forecast for the cluster. Each of its steps took `step_seconds`
  /// on a node of kind `node`.
  void finish(const std::string& id, const std::string& node, double step_seconds) {
    NewJob asked = new_job(id);
    asked.spec.mutable_resources()->set_cluster("slurm");
    asked.spec.mutable_resources()->set_threads(2);
    asked.plan.set_precision(v1::Recipe::TF32);
    asked.plan.set_steps_total(101);
    v1::Forecast& forecast = *asked.plan.add_forecasts();
    forecast.set_device("clusters/slurm");
    forecast.set_device_model("2 kinds of node");
    forecast.set_graph("graph");
    forecast.set_step_seconds(1);
    forecast.set_total_seconds(100);
    Job job = store->jobs().submit(asked).value();
    job = store->jobs().start_attempt(job.uid, {"clusters/slurm"}, "n", "R", "m").value();
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(started)).ok());
    AttemptUpdate end = update_of(job, 2);
    end.step = 101;
    end.times = v1::RunTimes();
    end.times->set_steps(100);
    end.times->set_step_seconds(step_seconds);
    end.move = move_to(JobState::kSucceeded);
    end.model = NewModel{"d-" + id, 400, 100, {}};
    end.node = node;
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).ok());
  }
};

TEST_F(ClusterRatesTest, TheFirstFinishedJobMeasuresAndLaterOnesAreForecast) {
  const auto rates = open();
  v1::Forecast f = rates->forecast(query_of());
  EXPECT_EQ(f.device(), "clusters/slurm");
  EXPECT_EQ(f.total_seconds(), 0);
  EXPECT_EQ(f.basis(),
            "unknown: no node of slurm has been measured with 2 threads yet; the first job that "
            "succeeds there measures its node at its end");
  EXPECT_EQ(rates->step_time(query_of()).error().reason, "RATE_UNKNOWN");

  const auto asked = rates->job_ended(use_of("t1"));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->threads(), 2);
  EXPECT_EQ(asked->precision(), v1::Recipe::FP32) << "as a CPU computes TF32";
  EXPECT_EQ(asked->seconds_max(), 3);
  EXPECT_TRUE(rates->job_ended(use_of("t1"))) << "the same task, which had not heard it";
  EXPECT_FALSE(rates->job_ended(use_of("t2"))) << "one at a time";
  EXPECT_EQ(rates->forecast(query_of()).basis(),
            "unknown: no node of slurm has been measured with 2 threads yet; a worker is measuring "
            "one now");
  EXPECT_TRUE(rates->job_ended(use_of("t3", "Other CPU"))) << "of a kind";
  EXPECT_TRUE(rates->job_ended(use_of("t4", "Fast CPU", 4))) << "and a number of threads";
  ASSERT_TRUE(rates->take("t1", to_json_text(rates_of(0.5))).ok());
  EXPECT_FALSE(rates->job_ended(use_of("t5"))) << "it is known now";
  NodeUse rebuilt = use_of("t6");
  rebuilt.facts.set_build("b2");
  EXPECT_TRUE(rates->job_ended(rebuilt));

  const auto reopened = open();  // a second instance that reads the rates from the store
  for (ClusterRates* const known : {rates.get(), reopened.get()}) {
    f = known->forecast(query_of());
    EXPECT_NEAR(f.step_seconds(), 0.5, 1e-6);
    EXPECT_NEAR(f.total_seconds(), 51, 1);
    EXPECT_LT(f.step_seconds_low(), f.step_seconds());
    EXPECT_EQ(f.device_model(), "Fast CPU, 8 cores");
    EXPECT_EQ(f.basis(), "speed measured with 2 threads on Fast CPU, 8 cores");
    EXPECT_EQ(f.time_limit_seconds(), 0);
    EXPECT_EQ(f.memory_bytes(), 5000);
    EXPECT_NEAR(known->step_time(query_of())->seconds, 0.5, 1e-6);
    EXPECT_EQ(known->forecast(query_of(100, 4)).total_seconds(), 0) << "of other threads";
    ClusterQuery other = query_of();
    other.cluster = "other";
    other.key = "other";
    EXPECT_EQ(known->forecast(other).total_seconds(), 0);
  }
}

TEST_F(ClusterRatesTest, SeveralKindsOfNodesGiveARangeAndTheLastSeenIsTheLikeliest) {
  const auto rates = open();
  measure(*rates, use_of("t1", "Fast CPU"), 0.5);
  clock.pass(kSecondUs);
  measure(*rates, use_of("t2", "Slow CPU"), 2);
  v1::Forecast f = rates->forecast(query_of());
  EXPECT_NEAR(f.step_seconds(), 2, 1e-6);
  EXPECT_LT(f.step_seconds_low(), 0.5);
  EXPECT_GT(f.step_seconds_high(), 2);
  EXPECT_EQ(f.device_model(), "2 kinds of node");
  EXPECT_EQ(f.basis(),
            "speed measured with 2 threads on Slow CPU, 8 cores, the kind that was seen last; the "
            "range covers all 2 kinds");
  clock.pass(kSecondUs);
  EXPECT_FALSE(rates->job_ended(use_of("t3", "Fast CPU")));
  const auto reopened = open();
  for (ClusterRates* const known : {rates.get(), reopened.get()}) {
    f = known->forecast(query_of());
    EXPECT_NEAR(f.step_seconds(), 0.5, 1e-6) << "it was seen last now";
    EXPECT_GT(f.step_seconds_high(), 2);
  }
}

TEST_F(ClusterRatesTest, MeasuredTimesOfJobsCorrectForecastsOfTheirKind) {
  const auto rates = open();
  measure(*rates, use_of("t1", "Slow CPU"), 2);
  clock.pass(kSecondUs);
  measure(*rates, use_of("t2", "Fast CPU"), 0.5);
  finish("one", "Fast CPU, 8 cores", 0.8);
  finish("nowhere", "", 7);
  const v1::Forecast f = rates->forecast(query_of());
  EXPECT_NEAR(f.step_seconds(), 0.8, 1e-6);
  EXPECT_GT(f.step_seconds_high(), 2) << "the other kind by its rates";
  EXPECT_TRUE(f.basis().starts_with("1 finished job of this graph on Fast CPU, 8 cores"))
      << f.basis();
  const std::vector<ForecastOutcome> all = store->forecasts().outcomes(0).value();
  ASSERT_EQ(all.size(), 1u) << "one whose node nobody knows says nothing";
  EXPECT_EQ(all[0].device_model, "clusters/slurm: Fast CPU, 8 cores");
  EXPECT_NEAR(rates->step_time(query_of())->seconds, 0.5, 1e-6) << "rates alone";
  v1::Cluster described;
  described.set_name("clusters/slurm");
  rates->describe(/*forecasts=*/true, described);
  EXPECT_EQ(described.forecasts().jobs(), 1);
  EXPECT_NEAR(described.forecasts().error_median(), 0.25, 1e-6);
  ASSERT_EQ(described.node_types_size(), 2);
  EXPECT_EQ(described.node_types(0).model(), "Fast CPU, 8 cores");
  EXPECT_EQ(described.node_types(0).memory_bytes(), int64_t{64} << 30);
  EXPECT_EQ(described.node_types(0).rates(0).threads(), 2);
  EXPECT_EQ(described.forecasts().missing(), "");
}

TEST_F(ClusterRatesTest, AfterAWorkerDiesDuringAMeasurementTheNextOneMeasures) {
  const auto rates = open();
  ASSERT_TRUE(rates->job_ended(use_of("t1")));
  rates->worker_gone("t1");
  EXPECT_NE(rates->forecast(query_of()).basis().find("ended before it had measured"),
            std::string::npos);
  EXPECT_EQ(rates->take("t1", to_json_text(rates_of(1))).error().reason, "RATES_NOT_REQUESTED");
  ASSERT_TRUE(rates->job_ended(use_of("t2")));
  rates->worker_gone("t2");
  ASSERT_TRUE(rates->job_ended(use_of("t3")));
  rates->worker_gone("t3");
  EXPECT_FALSE(rates->job_ended(use_of("t4"))) << "not at the end of every job";
  clock.pass(3600 * kSecondUs);
  ASSERT_TRUE(rates->job_ended(use_of("t5")));
  // The worker of t5 never reports again, not even its end.
  clock.pass(60 * kSecondUs);
  EXPECT_FALSE(rates->job_ended(use_of("t6")));
  clock.pass(31 * kSecondUs);
  measure(*rates, use_of("t7"), 0.5);
  EXPECT_GT(rates->forecast(query_of()).total_seconds(), 0);
}

TEST_F(ClusterRatesTest, ImplausibleRatesAreRefused) {
  const auto rates = open();
  const auto refused = [&](const std::string& task, const std::string& json) {
    clock.pass(3600 * kSecondUs);
    EXPECT_TRUE(rates->job_ended(use_of(task)));
    const Status taken = rates->take(task, json);
    EXPECT_FALSE(taken.ok()) << json.substr(0, 100);
    rates->worker_gone(task);
    return taken.ok() ? std::string() : taken.error().reason + " " + taken.error().message;
  };
  EXPECT_EQ(refused("t1", std::string((1 << 20) + 1, ' ')),
            "RATES_INVALID rates: 1048577 bytes, expected at most 1048576");
  EXPECT_TRUE(refused("t2", "{").starts_with("RATES_INVALID"));
  EXPECT_TRUE(refused("t3", std::string(1 << 19, '[')).starts_with("RATES_INVALID"));
  DeviceRates none = rates_of(1);
  none.samples.clear();
  EXPECT_EQ(refused("t4", to_json_text(none)),
            "RATES_INVALID rates: 0 samples, expected 1 to 4096");
  DeviceRates many = rates_of(1);
  many.samples.resize(4097, many.samples[0]);
  EXPECT_TRUE(refused("t5", to_json_text(many)).starts_with("RATES_INVALID rates: 4097 samples"));
  EXPECT_TRUE(refused("t6", to_json_text(rates_of(601))).ends_with("has impossible values"));
  DeviceRates negative = rates_of(1);
  negative.samples[1].node.bytes = -1;
  EXPECT_TRUE(refused("t7", to_json_text(negative)).starts_with("RATES_INVALID"));
  DeviceRates large = rates_of(1);
  large.samples[1].node.flops = 1e19;
  EXPECT_TRUE(refused("t8", to_json_text(large)).ends_with("has impossible values"));
  DeviceRates slow = rates_of(1);
  slow.process_seconds = 1e6;
  EXPECT_TRUE(refused("t9", to_json_text(slow)).starts_with("RATES_INVALID rates: a time above"));
  DeviceRates named = rates_of(1);
  named.samples[0].node.op = "Gemm\x1b[2J";
  EXPECT_TRUE(
      refused("t10", to_json_text(named)).starts_with("RATES_INVALID rates: the op of a sample"));
  EXPECT_EQ(rates->forecast(query_of()).total_seconds(), 0);
  EXPECT_TRUE(store->forecasts().node_rates()->empty());
}

TEST_F(ClusterRatesTest, NodesWithoutFactsAreNotMeasured) {
  const auto rates = open();
  NodeUse unknown = use_of("t1");
  unknown.facts.set_cpu_model("\n\x01");
  EXPECT_FALSE(rates->job_ended(unknown));
  NodeUse odd = use_of("t2");
  odd.facts.set_cores(-3);
  EXPECT_FALSE(rates->job_ended(odd));
  NodeUse elsewhere = use_of("t3");
  elsewhere.cluster = "gone";
  EXPECT_FALSE(rates->job_ended(elsewhere));
  NodeUse crowded = use_of("t4");
  crowded.facts.set_cores_given(1);
  EXPECT_FALSE(rates->job_ended(crowded));
  EXPECT_NE(rates->forecast(query_of()).basis().find("has only 1 of the cores"), std::string::npos);
  EXPECT_EQ(node_name(use_of("t", std::string(300, 'x')).facts, false),
            std::string(128, 'x') + ", 8 cores");
  EXPECT_EQ(node_name(use_of("t").facts, /*on_gpus=*/true), "") << "no GPU was told";
}

TEST_F(ClusterRatesTest, RatesOfGpusDependOnTheModelAndNotOnTheThreads) {
  const auto rates = open();
  NodeUse use = use_of("t1", "Fast CPU", 8);
  use.on_gpus = true;
  use.facts.set_gpu_model("GPU 9");
  use.facts.set_gpu_free_bytes(int64_t{79} << 30);
  measure(*rates, use, 0.01);
  ClusterQuery query = query_of(100, 3);
  query.on_gpus = true;
  query.devices = 2;
  const v1::Forecast f = rates->forecast(query);
  EXPECT_NEAR(f.step_seconds(), 0.01, 1e-6);
  EXPECT_EQ(f.device_model(), "GPU 9");
  EXPECT_EQ(f.devices(), 2);
  EXPECT_EQ(f.basis(), "speed measured on GPU 9");
  EXPECT_EQ(rates->forecast(query_of()).total_seconds(), 0) << "not of its CPU";
  v1::Cluster described;
  described.set_name("clusters/slurm");
  rates->describe(false, described);
  EXPECT_EQ(described.node_types(0).memory_bytes(), int64_t{79} << 30);
}

TEST_F(ClusterRatesTest, ATimeLimitGivesSeveralStartsAndAPriceGivesACost) {
  config.time_limit_seconds = 600;
  config.price_per_hour = 3.6;
  const auto rates = open();
  measure(*rates, use_of("t1"), 1);
  v1::Forecast f = rates->forecast(query_of(100));
  EXPECT_EQ(f.time_limit_seconds(), 600);
  EXPECT_EQ(f.starts(), 1);
  EXPECT_NEAR(f.cost(), f.total_seconds() / 1000, 1e-9);
  // Of the 600 s, a tenth is kept for the last checkpoint and 1 s for the start, which leaves 539 s
  // for steps.
  f = rates->forecast(query_of(1600));
  EXPECT_EQ(f.starts(), 3);
  EXPECT_GT(f.total_seconds(), 1602) << "each begins anew";
  EXPECT_LT(f.total_seconds(), 1625);
  ClusterQuery wide = query_of(100);
  wide.nodes = 3;
  wide.key = "wide";
  EXPECT_NEAR(rates->forecast(wide).cost(), 3 * f.total_seconds() / 1000, 5);
  EXPECT_EQ(rates->forecast(wide).devices(), 3);
}

TEST_F(ClusterRatesTest, WithoutALimitInTheFileTheWorkersLimitIsUsed) {
  const auto rates = open();
  NodeUse use = use_of("t1");
  use.facts.set_time_limit_seconds(60);
  measure(*rates, use, 1);
  const v1::Forecast f = rates->forecast(query_of(100));
  EXPECT_EQ(f.time_limit_seconds(), 60);
  EXPECT_EQ(f.starts(), 2);
  NodeUse endless = use_of("t2", "Fast CPU", 1);
  endless.facts.set_time_limit_seconds(int64_t{364} * 86'400);
  clock.pass(kSecondUs);
  measure(*rates, endless, 1);
  EXPECT_EQ(rates->forecast(query_of(100, 1)).time_limit_seconds(), 0)
      << "as Slurm says of an infinite one";
}

TEST(StartsWithin, LeavesTimeForCheckpointsAndStarts) {
  EXPECT_EQ(starts_within(3600, 3000, 10), 1);
  EXPECT_EQ(starts_within(3600, 3530, 10), 1);
  EXPECT_EQ(starts_within(3600, 3550, 10), 2);
  EXPECT_EQ(starts_within(3600, 4 * 3530, 10), 4);
  EXPECT_EQ(starts_within(60, 100, 60), 0) << "no time for a step";
  EXPECT_EQ(starts_within(3600, 0, 0), 1);
}

TEST_F(ClusterRatesTest, ForecastsOverSeveralNodesStateTheAssumedNetwork) {
  const auto rates = open();
  measure(*rates, use_of("t1"), 0.5);
  ClusterQuery query = query_of();
  RunWork work = *query.work;
  work.step.sent_exposed = {1, 2 * kAssumedCpuNetwork.bytes_per_second};
  query.work = std::make_shared<RunWork>(work);
  EXPECT_NEAR(rates->step_time(query)->seconds, 0.5, 1e-6) << "one node sends nothing";
  work.spread_over_nodes();
  query.work = std::make_shared<RunWork>(work);
  query.nodes = 2;
  query.key = "two";
  const v1::Forecast f = rates->forecast(query);
  EXPECT_NEAR(f.step_seconds(), 2.5, 1e-3);
  EXPECT_GT(f.step_seconds_high(), 6) << "where the network is slow";
  EXPECT_EQ(f.limited_by(), "exchanges");
  EXPECT_NE(f.basis().find("the network between its nodes is not measured: 0.3 GB/s are assumed"),
            std::string::npos)
      << f.basis();
}

TEST_F(ClusterRatesTest, AClusterIsNotMeasuredIfItsFileForbidsIt) {
  config.measure_nodes = false;
  const auto rates = open();
  EXPECT_FALSE(rates->job_ended(use_of("t1")));
  EXPECT_NE(rates->forecast(query_of()).basis().find("(measure_nodes is false in its file)"),
            std::string::npos);
}

TEST(ClusterAdvice, IsGivenIfAClusterIsTwiceAsFast) {
  v1::Forecast here, there;
  here.set_total_seconds(1440);
  there.set_device("clusters/slurm");
  there.set_total_seconds(720);
  EXPECT_EQ(cluster_advice({here}, there),
            "clusters/slurm: 12 min (not counting its queue); choose it with resources.cluster.");
  there.set_total_seconds(721);
  EXPECT_EQ(cluster_advice({here}, there), "");
  EXPECT_EQ(cluster_advice({}, there), "") << "nothing to compare it with";
  EXPECT_EQ(cluster_advice({here}, v1::Forecast()), "");
}

}  // namespace
}  // namespace trainyard::server
