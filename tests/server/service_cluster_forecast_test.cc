// Tests of the clusters' part of a plan: the forecast next to the time limit, and advice about a
// cluster that would be faster.
#include "server/planning/cluster_forecast.h"

#include <gtest/gtest.h>

#include "tests/server/forecast_samples.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class ClusterForecastTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterConfig cpus;
    cpus.name = "cpus";
    cpus.cpus = 4;
    cpus.time_limit_seconds = 3600;
    ClusterConfig gpus;
    gpus.name = "gpus";
    gpus.gpus_per_node = 2;
    clusters_ = {cpus, gpus};
    rates_ = std::make_unique<ClusterRates>(*store_, clusters_);
  }
  /// Records that each node of a network takes `seconds` on a node of the cluster.
  void measure(const std::string& cluster, bool on_gpus, int32_t threads, double seconds) {
    NodeUse use;
    use.task = cluster + std::to_string(threads);
    use.cluster = cluster;
    use.on_gpus = on_gpus;
    use.threads = threads;
    use.precision = v1::Recipe::TF32;
    use.facts.set_cpu_model("Fast CPU");
    use.facts.set_gpu_model("GPU 9");
    use.facts.set_cores(8);
    use.facts.set_cores_given(8);
    ASSERT_TRUE(rates_->job_ended(use));
    ASSERT_TRUE(rates_->take(use.task, to_json_text(product_rates(seconds))).ok());
  }
  static std::shared_ptr<const RunWork> work(int64_t steps = 7200) {
    return std::make_shared<RunWork>(work_of_products(steps));
  }
  static v1::JobSpec spec(const std::string& cluster = "") {
    v1::JobSpec spec;
    spec.mutable_resources()->set_cluster(cluster);
    spec.mutable_resources()->set_threads(4);
    spec.mutable_recipe()->set_precision(v1::Recipe::TF32);
    return spec;
  }
  std::string advice(double seconds_here, bool threads_named = false,
                     const v1::JobSpec& asked = spec(), int64_t bytes = 1000) {
    v1::Forecast here;
    here.set_total_seconds(seconds_here);
    const ClusterQuestion question{clusters_, asked, threads_named, "key", bytes, bytes};
    return faster_clusters(*rates_, question, {here},
                           [](Processor) { return Result<std::shared_ptr<const RunWork>>(work()); })
        .value();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()));
  std::vector<ClusterConfig> clusters_;
  std::unique_ptr<ClusterRates> rates_;
};

TEST_F(ClusterForecastTest, APlanShowsTheTimeAndTheLimit) {
  v1::RunPlan plan;
  const ClusterQuery query = cluster_query(spec("cpus"), work(), "key", 500);
  add_cluster_forecast(*rates_, query, plan);
  ASSERT_EQ(plan.forecasts_size(), 1);
  EXPECT_EQ(plan.device_advice(), "A node of the cluster cpus, as asked.");
  EXPECT_NE(plan.forecasts(0).basis().find("no node of cpus has been measured with 4 threads"),
            std::string::npos);
  measure("cpus", false, 4, 1);
  plan.Clear();
  add_cluster_forecast(*rates_, query, plan);
  EXPECT_EQ(
      plan.device_advice(),
      "A node of the cluster cpus, as asked: 2 h there (111 min to 2 h); its time limit of 60 min "
      "splits it into 3 starts, each after its own wait in the queue.");
  EXPECT_EQ(plan.forecasts(0).memory_bytes(), 500);
  plan.Clear();
  add_cluster_forecast(*rates_, cluster_query(spec("cpus"), work(60), "short", 500), plan);
  EXPECT_EQ(plan.device_advice().find("limit"), std::string::npos) << plan.device_advice();
}

TEST_F(ClusterForecastTest, AJobWithDeviceAutoIsToldOfAFasterCluster) {
  EXPECT_EQ(advice(1e6), "") << "nothing is measured";
  measure("cpus", false, 4, 1);
  measure("gpus", true, 1, 0.1);
  EXPECT_EQ(advice(14'500),
            " clusters/cpus: 2 h (not counting its queue); choose it with resources.cluster. "
            "clusters/gpus: "
            "12 min (not counting its queue); choose it with resources.cluster.");
  EXPECT_EQ(advice(14'000),
            " clusters/gpus: 12 min (not counting its queue); choose it with resources.cluster.");
  EXPECT_EQ(advice(1'000), "");
  v1::JobSpec two = spec();
  two.mutable_resources()->set_threads(2);
  EXPECT_NE(advice(14'500, false, two).find("cpus"), std::string::npos)
      << "there it would have the cluster's threads";
  EXPECT_EQ(advice(14'500, true, two).find("cpus"), std::string::npos) << "these are its own";
  v1::JobSpec cpu = spec();
  cpu.mutable_resources()->set_device(v1::Resources::CPU);
  EXPECT_EQ(advice(14'500, false, cpu), "") << "as asked";
  clusters_[0].memory_bytes = 999;
  EXPECT_EQ(advice(14'500).find("cpus"), std::string::npos) << "it has no room there";
}

ClusterQuery query_of(int nodes, const std::shared_ptr<const RunWork>& work) {
  v1::JobSpec spec;
  spec.mutable_resources()->set_cluster("cluster");
  spec.mutable_resources()->set_nodes(nodes);
  spec.mutable_resources()->set_threads(1);
  return cluster_query(spec, work, "plan", 0);
}

TEST(ClusterQuery, RanksOfSeveralNodesSendOverTheirNetwork) {
  RunWork work;
  work.step.digest = "d1";
  work.step.sent_exposed = {1, 1e6};
  const auto shared = std::make_shared<const RunWork>(work);
  const ClusterQuery one = query_of(1, shared), two = query_of(2, shared);
  EXPECT_EQ(one.work, shared);
  EXPECT_EQ(assumed_link(one.work->step), "") << "they read each other's memory";
  EXPECT_NE(assumed_link(two.work->step).find("the network between its nodes"), std::string::npos);
  EXPECT_TRUE(two.work->evaluation.over_network);
  EXPECT_FALSE(shared->step.over_network) << "others plan by it too";
  EXPECT_NE(one.work->step.digest, two.work->step.digest);
  EXPECT_NE(one.key, two.key);
  EXPECT_EQ(query_of(2, two.work).work->step.digest, two.work->step.digest) << "once is enough";
}

}  // namespace
}  // namespace trainyard::server
